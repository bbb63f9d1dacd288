"""The files of a container as its host sees them, whatever commands make of their folder."""

import os
from pathlib import Path

import pytest

from ferrule.containers.data import list_files, make_file, open_file, remove_file


def test_names_that_are_no_text(tmp_path: Path) -> None:
    for name in (b"bad\xff", b"new\nline", b"good"):
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes(name)
    listed = {found.shown: found for found in list_files(tmp_path)}
    assert sorted(listed) == ["bad\ufffd", "good", "new\nline"]
    fd = open_file(tmp_path, listed["bad\ufffd"].path)
    assert os.read(fd, 99) == b"bad\xff"
    os.close(fd)
    remove_file(tmp_path, listed["bad\ufffd"].path)
    assert len(list_files(tmp_path)) == 2


@pytest.mark.parametrize("mode", [0, 0o500, 0o300])
def test_a_closed_folder_is_opened_by_its_owner(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "inner").mkdir(mode=0)
    (folder / "file").write_text("text")
    folder.chmod(mode)
    assert [found.path for found in list_files(folder)] == ["file"]
    assert folder.stat().st_mode & 0o700 == 0o700
    folder.chmod(mode)
    name, fd = make_file(folder, "file")
    os.close(fd)
    assert name == "file_2"
