"""Build the root of a container: a new, small file system that holds what a plan lists and nothing else of the host.

Part of the holder (`mother.py`): standard library only. `root.py` says what a root is made of.
"""

import os

from . import kernel
from .filesystem import build_dev, device_trees
from .kernel import StepError

STAGE = b"/tmp"
"""Where the new root is mounted before it becomes the root: it exists everywhere, and nothing of it is read meanwhile.
"""
ROOT_OPTIONS = b"mode=755,size=1m,nr_inodes=4096"
"""The root itself holds a few small files, links and the folders that others are mounted on; it becomes read-only."""
SHARED_MEMORY = b"mode=1777,size=64m"
"""As in other containers; what lies there counts as memory."""
READ_ONLY = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
WRITABLE = kernel.ATTR_NOSUID | kernel.ATTR_NODEV
Trees = dict[bytes, int]
"""Mounts that were made before, by the place of each: those of an image are `base` and `layer`."""


def build_root(plan: dict, places: list[bytes], made: Trees) -> None:  # type: ignore[type-arg]
    """Replace the file system by what the plan lists. Files can be mounted at `places` then. Raises `StepError`."""
    # Private, not slave: a slave would receive the host's later mounts.
    kernel.mount(None, b"/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    devices = device_trees()
    # A new /proc can be mounted only while one is visible: this one lies below that of every init.
    trees = [(b"/proc", kernel.clone_tree(b"/proc"), True)]
    for source, target, writable in plan["binds"]:
        tree = made[target] if target in made else new_tree(source, writable)
        trees.append((target, tree, is_folder(tree)))
    if plan["image"]:
        base, upper, work = plan["image"]
        mount_image(base, upper, work, made)
    else:
        kernel.mount(b"tmpfs", STAGE, b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, ROOT_OPTIONS)
    kernel.change_root(STAGE)
    for path in (*plan["folders"], b"/dev"):
        os.makedirs(path, exist_ok=True)
    for path, target in plan["links"]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    for path, content in plan["files"]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        write(path, content)
    for target, tree, folder in trees:
        place = make_place(target, folder)
        if target in plan["in_place"] and place != target:
            raise StepError(0, "there is a link in the image where a folder has to be shown", target)
        pin_above(target, plan["pins"])
        kernel.attach(tree, place)
    for path in places:
        make_place(path, folder=False)
    build_dev(devices, SHARED_MEMORY)
    if not plan["image"]:
        kernel.set_attributes(READ_ONLY, path=b"/", recursive=False)


def new_tree(source: bytes, writable: bool) -> int:
    tree = kernel.clone_tree(source)
    kernel.set_attributes(WRITABLE if writable else READ_ONLY, tree)
    return tree


def mount_image(base: bytes, upper: bytes, work: bytes, made: Trees) -> None:
    """Mount an image, with a writable layer or, if it is a copy, as it is."""
    if not upper:
        kernel.attach(made[b"base"] if made else new_tree(base, writable=True), STAGE)
        return
    lower, layer = base, os.path.dirname(upper)
    if made:  # not every kernel takes layers that are mounted nowhere
        kernel.mount(b"tmpfs", STAGE, b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, ROOT_OPTIONS)
        lower, layer = STAGE + b"/base", STAGE + b"/layer"
        for place, name in ((lower, b"base"), (layer, b"layer")):
            os.mkdir(place)
            kernel.attach(made[name], place)
    upper, work = (os.path.join(layer, os.path.basename(path)) for path in (upper, work))
    try:
        kernel.mount_overlay(lower, upper, work, STAGE, b"userxattr")
    except StepError as error:
        raise StepError(error.number, "overlay", base) from None


def is_folder(tree: int) -> bool:
    return os.fstat(tree).st_mode & 0o170000 == 0o040000


def make_place(target: bytes, folder: bool) -> bytes:
    """Make what a tree can be mounted on, where there is nothing yet. Returns its real path: an image may have links
    there, which lead nowhere but into the new root by now."""
    target = os.path.realpath(target)
    if not os.path.exists(target):
        os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
        if not folder:
            write(target, b"")
    return target


def pin_above(target: bytes, pins: list[bytes]) -> None:
    """Make mounts of the folders above, which commands could rename otherwise. `pins` is emptied of those."""
    for pin in [pin for pin in pins if target.startswith(pin + b"/")]:
        kernel.bind(pin, pin)
        pins.remove(pin)


def write(path: bytes, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.write(fd, content)
    os.close(fd)
