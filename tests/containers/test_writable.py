"""Copies of an image's root."""

import os
import shutil
from pathlib import Path

import pytest

from ferrule.containers.images import Image, Images, Way, copy_root
from ferrule.containers.images.writable import copy_tree
from tests.containers.layouts import file, folder, layer, layout, link, symlink


@pytest.fixture
def image(tmp_path: Path) -> Image:
    entries = [folder("a"), file("a/x", b"1", 0o755), link("a/y", "a/x"), symlink("l", "a/x"), folder("shut", 0o711)]
    return Images(tmp_path / "store").import_(layout(tmp_path / "layout", layer(*entries)), "demo")


def shown(root: Path) -> list[tuple[str, int, float]]:
    return sorted(
        (str(path.relative_to(root)), path.lstat().st_mode, path.lstat().st_mtime) for path in root.rglob("*")
    )


@pytest.mark.parametrize("way", [Way.COPY, Way.REFLINK])
def test_a_copy_is_the_same_and_the_image_stays(tmp_path: Path, image: Image, way: Way) -> None:
    with (image.root / "holes").open("wb") as holes:
        holes.seek(1 << 20)
        holes.write(b"x")
        holes.truncate(3 << 20)
    before = shown(image.root)
    made = tmp_path / "place"
    assert copy_tree(image.root, made, way) in (way, Way.COPY)
    assert shown(made) == before
    assert (made / "a/x").stat().st_ino == (made / "a/y").stat().st_ino
    assert (made / "holes").read_bytes() == (image.root / "holes").read_bytes()
    assert (made / "holes").stat().st_blocks <= (image.root / "holes").stat().st_blocks
    (made / "a/x").write_text("2")
    assert (image.root / "a/x").read_text() == "1"


def test_a_place_that_is_taken_stays_as_it_is(tmp_path: Path, image: Image) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place/mine").touch()
    with pytest.raises(FileExistsError):
        copy_tree(image.root, tmp_path / "place")
    assert (tmp_path / "place/mine").exists()


def test_folders_that_lie_in_each_other_without_end_are_said(tmp_path: Path) -> None:
    (tmp_path / "a" / "/".join("d" * 300)).mkdir(parents=True)
    with pytest.raises(OSError, match="more than 250 folders lie in each other there"):
        copy_tree(tmp_path / "a", tmp_path / "place")
    assert not (tmp_path / "place").exists()
    shutil.rmtree(tmp_path / "a")


def test_what_is_no_file_is_left_out(tmp_path: Path, image: Image) -> None:
    os.mkfifo(image.root / "pipe")
    copy_root(image.root, tmp_path / "place")
    assert not (tmp_path / "place" / "pipe").exists()
