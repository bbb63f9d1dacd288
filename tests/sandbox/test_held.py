"""Level 3 alone: protected paths that are held and compared."""

import mmap
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ferrule.git.programs import examine
from ferrule.sandbox.linux import held
from ferrule.sandbox.linux.held import HeldPaths


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A protected folder as git has it."""
    folder = tmp_path / ".git"
    (folder / "hooks").mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text("[core]\n\tbare = false\n")
    return folder


@pytest.fixture
def paths(top: Path) -> Iterator[HeldPaths]:
    made = HeldPaths()
    made.hold([str(top)])
    yield made
    made.close()


def write_mapped(path: Path) -> Callable[[bytes], None]:
    """A writer as a command can have it: the kernel stamps the file at its first write only."""
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)

    def write(content: bytes) -> None:
        mapped[: len(content)] = content

    write(mapped[:1])
    return write


def test_a_write_without_a_new_time_stamp(paths: HeldPaths, top: Path) -> None:
    began = time.time_ns() - 20_000_000
    write = write_mapped(top / "config")
    assert paths.changes(settled=began) == ()
    before = os.stat(top / "config").st_ctime_ns
    write(b"[xxxx]")
    assert os.stat(top / "config").st_ctime_ns == before
    assert paths.changes(settled=began) == (f"{top}/config",)
    assert paths.all_changes(settled=began) == (f"{top}/config",)


def test_settings_written_without_a_new_time_stamp(top: Path) -> None:
    began = time.time_ns() - 20_000_000
    write = write_mapped(top / "config")
    seen = examine(str(top), lambda path: False)
    write(b"[evil]")
    assert (seen.is_current(), seen.is_current(began)) == (True, False)


def test_a_large_file_that_was_written_behind_what_is_read(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LARGEST_FILE", 1000)
    hook = top / "hooks/pre-commit"
    hook.write_bytes(b"x" * 3000)
    paths = HeldPaths()
    paths.hold([str(top)])
    with hook.open("r+b") as file:
        file.seek(2000)
        file.write(b"y")
    assert paths.changes() == (str(hook),)
    paths.close()


@pytest.mark.parametrize("depth", [30, 3000])
def test_folders_in_folders_are_a_bound(paths: HeldPaths, top: Path, depth: int) -> None:
    folder = os.open(top / "hooks", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    paths.changes()
    assert paths.full is not None and f"{top} holds more than 20 folders in folders" in paths.full
    subprocess.run(["rm", "-r", str(top / "hooks")], check=True)  # pytest cannot


def test_empty_folders_count(paths: HeldPaths, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MAX_FILES", 30)
    for number in range(40):
        (top / "hooks" / str(number)).mkdir()
    paths.changes()
    assert paths.full is not None and "holds more than 30 protected files" in paths.full


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def make_closed(path: Path) -> None:
    """To root nothing is."""
    path.mkdir(mode=0)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a socket": make_socket,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a closed folder": make_closed,
}


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL.keys())
def test_whatever_lies_there(tmp_path: Path, make: Callable[[Path], object]) -> None:
    place = tmp_path / ".git"
    make(place)
    paths = HeldPaths()
    paths.hold([str(place)])
    assert (paths.changes(), paths.full) == ((), None)
    place.rename(tmp_path / "moved")
    assert paths.changes() == (f"{place} (moved to {tmp_path}/moved)",)
    paths.close()


def test_a_folder_that_cannot_be_listed(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for another user's; the opener is a stand-in, because root opens everything."""
    opened = os.open
    closed = lambda path, flags, **rest: opened(path, os.O_PATH | os.O_NOFOLLOW, **rest)  # noqa: E731
    monkeypatch.setattr(os, "open", closed)
    paths = HeldPaths()
    paths.hold([str(top)])
    monkeypatch.undo()
    assert (paths.changes(), paths.full) == ((), None)
    top.chmod(0o700 if top.stat().st_mode & 0o77 else 0o755)
    assert paths.changes() == (str(top),)
    paths.close()


def test_without_descriptors_no_command_starts(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        raise OSError(24, "Too many open files", path)

    monkeypatch.setattr(os, "open", refuse)
    paths = HeldPaths()
    paths.hold([str(top)])
    assert paths.full is not None and "no file descriptor is left" in paths.full
