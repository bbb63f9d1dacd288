"""Files of containers, found again by their ids."""

import asyncio
import os
from pathlib import Path

import pytest

from ferrule.containers.data import NoFile
from ferrule.hosted.container_files import ContainerFiles


def test_a_file_is_found_by_its_id_whenever_it_came(tmp_path: Path) -> None:
    files = ContainerFiles("cntr_1", tmp_path)
    (tmp_path / "a").write_text("a")
    assert asyncio.run(files.of_id(files.id_of("a"))).bytes == 1
    (tmp_path / "d").mkdir()
    (tmp_path / "d/b").write_text("bb")
    assert asyncio.run(files.of_id(files.id_of("d/b"))).path == "d/b"
    for name in ("a", "d/b"):
        (tmp_path / name).unlink()
    os.symlink("/etc/passwd", tmp_path / "a")
    os.mkfifo(tmp_path / "d/b")
    for name in ("a", "d/b", "never"):
        with pytest.raises(NoFile):
            asyncio.run(files.of_id(files.id_of(name)))


def test_one_file_costs_no_look_at_all_others(tmp_path: Path) -> None:
    files = ContainerFiles("cntr_1", tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/b").write_text("bb")
    assert [found.path for found in asyncio.run(files.all())] == ["d/b"]
    before = os.stat(tmp_path / "d").st_atime_ns
    os.utime(tmp_path / "d", ns=(0, 0))  # whoever lists it now changes the time of access
    assert asyncio.run(files.of_id(files.id_of("d/b"))).bytes == 2
    text = "[one](sandbox:/mnt/data/d/b) [none](sandbox:/mnt/data/../secret)"
    assert [one["filename"] for one in asyncio.run(files.citations(text))] == ["b"]
    assert os.stat(tmp_path / "d").st_atime_ns == 0 < before
    asyncio.run(files.all())
    if os.stat(tmp_path / "d").st_atime_ns == 0:
        pytest.skip("this file system keeps no times of access")
