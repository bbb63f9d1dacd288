"""Where containers lie: somebody else has the name, the disk is full, something cannot be removed."""

import asyncio
import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ferrule.containers.place
from ferrule.containers import ContainerError, ContainerSettings, LocalHost
from ferrule.containers.place import Slot, default_place, in_our_hands, make_place, new_slot, on_disk, take_slot
from ferrule.containers.removal import remove_tree
from ferrule.sandbox.linux.root import Bind
from tests.containers.test_life import folders
from tests.processes import until


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for `/var/tmp`."""
    monkeypatch.setattr(ferrule.containers.place, "SHARED", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", ["file", "link", "open folder", "another's folder"])
def test_somebody_has_the_usual_name(shared: Path, kind: str) -> None:
    usual = shared / f"ferrule-{os.getuid()}"
    if kind == "file":
        usual.touch()
    elif kind == "link":
        usual.symlink_to(shared)
    else:
        usual.mkdir()
        usual.chmod(0o777)
    if kind == "another's folder":
        if os.getuid():
            pytest.skip("only root can give a folder away")
        usual.chmod(0o700)
        os.chown(usual, 4711, 4711)
    place = default_place("/home")
    assert place.parent.parent == shared and place.parent.name.startswith(f"{usual.name}-")
    assert default_place("/home") == place, "the next process finds it again"
    make_place(place)
    assert place.is_dir() and place.parent.stat().st_mode & 0o777 == 0o700
    assert not usual.is_dir() or usual.is_symlink() or not os.listdir(usual)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk with no room but for a few folders."""
    if os.getuid():
        pytest.skip("only root can mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("this root cannot mount a disk")
    (tmp_path / "filler").write_bytes(bytes(4096))
    yield tmp_path / "place"
    subprocess.run(["umount", tmp_path], check=True)


async def test_a_full_disk(full: Path) -> None:
    async with LocalHost.open(full) as host:
        with pytest.raises(ContainerError, match="No space left"):
            await host.create()
        assert await host.list() == ()
        assert folders(full) == []
        with pytest.raises(ContainerError, match="No space left"):
            host.adopt(ContainerSettings())
        assert folders(full) == []
        (full.parent / "filler").unlink()
        await (await host.create()).aclose()


async def test_what_cannot_be_removed_is_in_nobodys_way(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(folder: Path) -> None:
        if folder.name in stuck:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(folder))
        remove_tree(folder)

    monkeypatch.setattr(ferrule.containers.place, "remove_tree", refuses)
    left = new_slot(place, ContainerSettings(temporary=True))
    left.release()
    stuck = {left.folder.name}
    async with LocalHost.open(place) as host:
        assert f"{left.folder} cannot be removed: Operation not permitted" in caplog.text
        first = await host.create(ContainerSettings(idle_seconds=0.6))
        stuck.add(first.id)
        second = await host.create(ContainerSettings(idle_seconds=0.7))
        await until(lambda: second.status == "expired" and second.id not in folders(place))
        assert first.status == "expired"
    stuck.clear()
    async with LocalHost.open(place):
        assert folders(place) == []


def test_paths_that_are_no_text_are_kept_as_they_are(place: Path) -> None:
    odd = os.fsdecode(b"/work/\xff\n")
    made = new_slot(place, ContainerSettings(binds=(Bind(odd, odd, True),)))
    made.publish()
    made.release()
    [info] = on_disk(place)
    again = take_slot(place, info.id)
    assert again.record.settings == info.settings == made.record.settings
    again.remove()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_slot_that_nobody_waits_for_any_more_is_removed(tmp_path: Path, fails: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def make() -> Slot:
        begun.set()
        go_on.wait()
        if fails:
            raise ContainerError("no")
        return new_slot(tmp_path / "place", ContainerSettings())

    waiting = asyncio.create_task(in_our_hands(make, Slot.remove))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert list(tmp_path.glob("place/cntr_*")) == []
