"""Hostile images at random: whatever they say, nothing outside the image's folder changes, nothing that harms lies in
it, and a refusal is one clear sentence. `scripts/fuzz 20000 -k images` tries many more.
"""

import os
import random
import shutil
import stat
from pathlib import Path

from ferrule.containers.images.errors import ImageError
from ferrule.containers.images.limits import ImportLimits
from ferrule.containers.images.store import Image, Images
from tests.containers.hostile import Hostile

EXAMPLES = int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "20"))
SEED = os.environ.get("FERRULE_FUZZ_SEED", "ferrule")
LIMITS = ImportLimits(bytes=1 << 20, free_bytes=1 << 20)
LONGEST = 400
"""Characters of a sentence that somebody reads."""


def seen(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything of a folder that could change: kinds, modes, owners, sizes, times, contents."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        what = (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, info.st_nlink, content)
        found[str(path)] = what
    return found


def check_inside(image: Image) -> None:
    """No set-ID bit, no device, no pipe, nothing that the owner could not remove."""
    for _, folders, names, above in os.fwalk(os.fsencode(image.root)):  # paths may be longer than the kernel takes
        for name in (*folders, *names):
            info = os.stat(name, dir_fd=above, follow_symlinks=False)
            kind = stat.S_IFMT(info.st_mode)
            assert kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK), (name, oct(info.st_mode))
            if kind == stat.S_IFREG:
                assert not info.st_mode & (stat.S_ISUID | stat.S_ISGID), name
                assert info.st_mode & stat.S_IRUSR, name


def test_hostile_images(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    (outside / "folder").mkdir(parents=True)
    (outside / "secret").write_text("secret")
    (outside / "a").symlink_to("secret")
    before = seen(outside)
    images = Images(tmp_path / "store")
    told: dict[bool, int] = {True: 0, False: 0}
    for number in range(EXAMPLES):
        dice = random.Random(f"{SEED} {number}")
        work.mkdir()
        path = Hostile(dice, outside).image(work / "image")
        try:
            image = images.import_(path, "hostile", limits=LIMITS, own=os.getuid() == 0 and dice.random() < 0.3)
        except ImageError as error:
            text = str(error)
            assert text.isprintable() and 10 < len(text) < LONGEST, f"{number}: {text!r}"
            told[False] += 1
        else:
            check_inside(image)
            images.remove("hostile")
            told[True] += 1
        assert seen(outside) == before, number
        assert os.listdir(images.store) == [".lock"], number
        shutil.rmtree(work)
    assert all(told.values()), told
