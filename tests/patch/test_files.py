import errno
import os
from pathlib import Path

import pytest

from ferrule.patch import PlainFiles, apply_patch
from tests.patch.file_layer_contract import FileLayerContract
from tests.patch.tree import patch, snapshot, update


class TestPlainFiles(FileLayerContract):
    @pytest.fixture(params=[False, True])
    def files(self, request: pytest.FixtureRequest) -> PlainFiles:
        return PlainFiles(fsync=request.param)


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if len(data) <= 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        PlainFiles().create(str(tmp_path / "f"), b"x" * 100)
    assert snapshot(tmp_path) == {}


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    PlainFiles().create(str(tmp_path / "f"), b"0123456789")
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_fsync_covers_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to name the descriptors")
    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "f").write_bytes(b"a\n")
    apply_patch(update("f", "@@", "-a", "+b"), str(tmp_path), PlainFiles(fsync=True))
    assert synced[0].endswith("(deleted)") or synced[0].startswith(".ferrule-")  # before it has a name, if it can be
    assert synced[1:] == [tmp_path.name, tmp_path.name]
    synced.clear()
    apply_patch(patch("*** Add File: g", "+x"), str(tmp_path), PlainFiles())
    assert synced == []


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="needs extended attributes")
def test_extended_attributes_survive(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a\n")
    try:
        os.setxattr(file, "user.note", b"keep")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    apply_patch(update("f", "@@", "-a", "+b"), str(tmp_path))
    assert os.getxattr(file, "user.note") == b"keep"
    assert file.read_bytes() == b"b\n"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="gives the file to another user")
@pytest.mark.parametrize(("user", "group"), [(1234, 2345), (0, 2345), (1234, 0)])
def test_owner_and_group_survive(tmp_path: Path, user: int, group: int) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a\n")
    os.chown(file, user, group)
    apply_patch(update("f", "@@", "-a", "+b"), str(tmp_path))
    assert (file.stat().st_uid, file.stat().st_gid) == (user, group)
    assert file.read_bytes() == b"b\n"
