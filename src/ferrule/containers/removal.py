"""Remove what commands have left on disk, whatever they made of it."""

import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(top: Path) -> None:
    """Remove a folder and all below it: closed folders, names that are no text, and nesting of any depth, too.

    Nobody else may write there any more. Folders are moved up to the top before they are emptied, so that neither the
    stack nor the descriptors limit the depth. Links are removed, not followed.
    """
    try:
        root = os.open(top, OPEN)
    except FileNotFoundError:
        return
    try:
        os.fchmod(root, stat.S_IRWXU)
        names = (b".removing-%d" % number for number in count())
        folders = [name for name in os.listdir(os.fsencode(f"/proc/self/fd/{root}")) if not _unlinked(name, root)]
        while folders:
            folders += _emptied(root, folders.pop(), names)
    finally:
        os.close(root)
    os.rmdir(top)


def _emptied(root: int, name: bytes, names: Iterator[bytes]) -> list[bytes]:
    """Remove one folder of the top; return the names under which its own folders lie there now."""
    os.chmod(name, stat.S_IRWXU, dir_fd=root)
    folder = os.open(name, OPEN, dir_fd=root)
    moved = []
    try:
        for inner in os.listdir(os.fsencode(f"/proc/self/fd/{folder}")):
            if not _unlinked(inner, folder):
                os.chmod(inner, stat.S_IRWXU, dir_fd=folder)  # a folder that we cannot write cannot be moved
                new = next(names)
                os.rename(inner, new, src_dir_fd=folder, dst_dir_fd=root)
                moved.append(new)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=root)
    return moved


def _unlinked(name: bytes, folder: int) -> bool:
    """Remove anything but a folder; False for a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):
        return False
    return True
