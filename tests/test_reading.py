"""Files that somebody else may have made: regular ones only, bounded, and never outside of their folder."""

import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.reading import Unreadable, names_inside, read_file, read_inside
from tests.processes import gained, held

LIMIT = 1000


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "repo"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "file").write_text("inside")
    (folder.parent / "secret").write_text("outside")
    (folder.parent / "repository").mkdir()
    (folder.parent / "repository" / "file").write_text("outside")
    return folder


def read(top: Path, path: str, limit: int = LIMIT) -> bytes:
    return read_inside(str(top), path, limit)


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("link", "a/file"),
        ("a/b/link", "../file"),
        ("a/b/link", "../../a/b/../file"),
        ("link", "{top}/a/file"),
        ("a/b/link", "{top}/./a//file"),
    ],
)
def test_links_that_stay_inside_are_followed(top: Path, link: str, target: str) -> None:
    (top / link).symlink_to(target.format(top=top))
    assert read(top, link) == b"inside"
    (top / "again").symlink_to(link)
    assert read(top, "again") == b"inside"


def test_a_linked_folder_inside_is_followed(top: Path) -> None:
    (top / "linked").symlink_to("a")
    assert read(top, "linked/file") == b"inside"
    assert names_inside(str(top), "linked", 10) == [("b", True), ("file", False)]


@pytest.mark.parametrize(
    "target",
    ["../secret", "{top}/../secret", "a/../../secret", "a/b/../../../secret", "{top}ository/file", "/proc/self/environ",
     "/dev/zero", "../repository/file"],
)  # fmt: skip
def test_s17_links_that_lead_out_are_not_followed(top: Path, target: str) -> None:
    (top / "link").symlink_to(target.format(top=top))
    with pytest.raises(Unreadable, match="leads out of"):
        read(top, "link")
    (top / "folder").symlink_to(os.path.dirname(target.format(top=top)))
    with pytest.raises(Unreadable, match="leads out of"):
        read(top, f"folder/{os.path.basename(target)}")


def test_a_path_that_leads_out_is_not_followed(top: Path) -> None:
    with pytest.raises(Unreadable, match="leads out of"):
        read(top, "../secret")
    with pytest.raises(Unreadable, match="leads out of"):
        names_inside(str(top), "..", 10)


def test_a_way_back_in_counts_as_out(top: Path) -> None:
    (top / "link").symlink_to("../repo/a/file")
    with pytest.raises(Unreadable, match="leads out of"):
        read(top, "link")


def test_links_in_a_circle_end(top: Path) -> None:
    (top / "x").symlink_to("y")
    (top / "y").symlink_to("x")
    with pytest.raises(Unreadable, match="a link that leads to itself"):
        read(top, "x")


def test_only_regular_files_are_read_and_nothing_is_waited_for(top: Path) -> None:
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(top / "socket"))
    for name, words in (("pipe", "is a named pipe"), ("socket", "is a socket"), ("a", "is a folder")):
        with pytest.raises(Unreadable, match=words):
            read(top, name)
        with pytest.raises(Unreadable, match=words):
            read_file(top / name, LIMIT)
    with pytest.raises(Unreadable, match="is a device"):
        read_file("/dev/zero", LIMIT)


@pytest.mark.parametrize("path", ["none", "none/file", "a/file/below", "a/none"])
def test_what_is_missing_is_missing(top: Path, path: str) -> None:
    with pytest.raises(FileNotFoundError):
        read(top, path)
    with pytest.raises(FileNotFoundError):
        read_file(top / path, LIMIT)


def test_reading_is_bounded(top: Path) -> None:
    (top / "big").write_bytes(b"x" * 5000)
    (top / "sparse").touch()
    os.truncate(top / "sparse", 1 << 40)
    for name in ("big", "sparse"):
        with pytest.raises(Unreadable, match="is larger than 4 KiB"):
            read(top, name, 4096)
        assert len(read_inside(str(top), name, 4096, cut=True)) == 4096
    assert len(read(top, "big", 5000)) == 5000


def test_a_folder_with_too_many_names(top: Path) -> None:
    for number in range(6):
        (top / "a" / "b" / str(number)).touch()
    assert len(names_inside(str(top), "a/b", 6)) == 6
    with pytest.raises(Unreadable, match="holds more than 5 files"):
        names_inside(str(top), "a/b", 5)
    with pytest.raises(Unreadable, match="is a file, not a folder"):
        names_inside(str(top), "a/file", 5)


def test_s17_a_path_that_is_changed_meanwhile_never_leads_out(top: Path) -> None:
    """A folder and a file on the way are swapped for links out, again and again, while they are read."""
    (top / "way").mkdir()
    (top / "way" / "file").write_text("inside")
    (top.parent / "file").write_text("outside")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (top / "way").rename(top / "aside")
            (top / "way").symlink_to("..")
            (top / "way").unlink()
            (top / "aside").rename(top / "way")

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    try:
        deadline, tries = time.monotonic() + 30, 0
        while tries < 3000 or (b"inside" not in seen and time.monotonic() < deadline):
            tries += 1
            try:
                seen.add(read(top, "way/file"))
            except (FileNotFoundError, Unreadable):
                seen.add(b"")
    finally:
        done.set()
        swapping.join()
    assert b"outside" not in seen and b"inside" in seen


def test_no_descriptor_is_left_open(top: Path) -> None:
    (top / "out").symlink_to("../secret")
    (top / "back").symlink_to("a/b/../file")
    before = held()
    for name in ("a/file", "back", "out", "none", "a"):
        with suppress(FileNotFoundError, Unreadable):
            read(top, name)
    assert not any(gained(before))
