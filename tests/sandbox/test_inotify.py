"""Folders that the kernel watches: what is clean, and what is not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ferrule.sandbox.linux import inotify
from ferrule.sandbox.linux.inotify import FolderWatch


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[FolderWatch]:
    made = FolderWatch([".git"])
    made.watch(str(tmp_path))
    yield made
    made.close()


def test_files_do_not_matter(watch: FolderWatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").unlink()
    assert (watch.listen(), watch.is_clean(str(tmp_path))) == (False, True)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: (path / "sub").mkdir(),
    "a name that matters": lambda path: (path / ".git").write_text("x"),
    "its rights": lambda path: path.chmod(0o700),
    "moved": lambda path: path.rename(f"{path}-moved"),
    "removed": lambda path: path.rmdir(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_matters(watch: FolderWatch, tmp_path: Path, change: Callable[[Path], object]) -> None:
    change(tmp_path)
    watch.listen()
    assert not watch.is_clean(str(tmp_path))


def test_a_folder_that_moved_is_known_by_its_new_path(watch: FolderWatch, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    watch.watch(f"{tmp_path}/a")
    (tmp_path / "a").rename(tmp_path / "b")
    watch.listen()
    watch.watch(f"{tmp_path}/b")
    watch.keep([str(tmp_path), f"{tmp_path}/b"])
    assert watch.is_clean(f"{tmp_path}/b")
    (tmp_path / "b/sub").mkdir()
    watch.listen()
    assert not watch.is_clean(f"{tmp_path}/b")


def test_lost_events_leave_nothing_clean(watch: FolderWatch, tmp_path: Path) -> None:
    watch._take(inotify._EVENT.pack(-1, inotify._OVERFLOW, 0, 0))
    assert not watch.is_clean(str(tmp_path))


def test_where_nothing_can_be_watched_nothing_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify, "_LOCAL", frozenset())
    remote = FolderWatch([])
    remote.watch(str(tmp_path))
    assert not remote.is_clean(str(tmp_path))
    remote.close()
    remote.watch(str(tmp_path))
    remote.listen()
    assert not remote.is_clean(str(tmp_path))
