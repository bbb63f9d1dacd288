"""Writable roots made from an image."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.containers.images import Image, Images, Way, make_writable
from ferrule.containers.images.writable import overlay_works
from ferrule.containers.removal import remove_tree
from tests.containers.layouts import file, folder, layer, layout, link, symlink

MOUNT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from linux import kernel
base, upper, work = map(os.path.abspath, sys.argv[2:])
kernel.enter_namespaces(network=True)
os.chdir(os.path.dirname(upper))
os.mkdir("merged")
options = f"lowerdir={base},upperdir={upper},workdir={work},userxattr".encode()
kernel.mount(b"overlay", b"merged", b"overlay", 0, options)
os.unlink("merged/a/x")
open("merged/a/new", "x").close()
print(sorted(os.listdir("merged/a")))
"""


@pytest.fixture
def image(tmp_path: Path) -> Image:
    entries = [folder("a"), file("a/x", b"1", 0o755), link("a/y", "a/x"), symlink("l", "a/x"), folder("shut", 0o711)]
    return Images(tmp_path / "store").import_(layout(tmp_path / "layout", layer(*entries)), "demo")


def shown(root: Path) -> list[tuple[str, int, float]]:
    return sorted(
        (str(path.relative_to(root)), path.lstat().st_mode, path.lstat().st_mtime) for path in root.rglob("*")
    )


def test_an_overlay_works_where_the_probe_says_so(tmp_path: Path, image: Image) -> None:
    place = tmp_path / "place"
    place.mkdir()
    if not overlay_works(place):
        pytest.skip("users cannot mount overlays here")
    made = make_writable(image, place)
    assert made.way is Way.OVERLAY and made.base == image.root and made.upper and made.work
    assert os.listdir(made.upper) == []
    assert stat.S_IMODE(made.upper.stat().st_mode) == stat.S_IMODE(image.root.stat().st_mode)
    sandbox = Path(sys.modules["ferrule"].__path__[0], "sandbox")
    words = [sys.executable, "-I", "-c", MOUNT, *map(str, (sandbox, made.base, made.upper, made.work))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['new', 'y']\n", "")
    assert sorted(os.listdir(image.root / "a")) == ["x", "y"]
    remove_tree(place)  # also the closed folder of the kernel's
    assert not place.exists()


@pytest.mark.parametrize("way", [Way.COPY, Way.REFLINK])
def test_a_copy_is_the_same_and_the_image_stays(tmp_path: Path, image: Image, way: Way) -> None:
    with (image.root / "holes").open("wb") as holes:
        holes.seek(1 << 20)
        holes.write(b"x")
        holes.truncate(3 << 20)
    place = tmp_path / "place"
    place.mkdir()
    before = shown(image.root)
    made = make_writable(image, place, way)
    assert made.way in (way, Way.COPY)
    assert shown(made.base) == before
    assert (made.base / "a/x").stat().st_ino == (made.base / "a/y").stat().st_ino
    assert (made.base / "holes").read_bytes() == (image.root / "holes").read_bytes()
    assert (made.base / "holes").stat().st_blocks <= (image.root / "holes").stat().st_blocks
    (made.base / "a/x").write_text("2")
    assert (image.root / "a/x").read_text() == "1"
