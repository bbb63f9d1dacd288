"""Remove what commands have left on disk, whatever they made of it."""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
THEIRS = (errno.EPERM, errno.EACCES, errno.ENOTEMPTY)
"""The kernel's answers where a file belongs to another user."""


def remove_tree(top: Path) -> None:
    """Remove a folder and all below it: closed folders, names that are no text, nesting of any depth, and files of
    subordinate ids, too.

    Nobody else may write there any more. Folders are moved up to the top before they are emptied, so that neither the
    stack nor the descriptors limit the depth. Links are removed, not followed.
    """
    try:
        _remove_own(top)
    except OSError as error:
        if error.errno not in THEIRS or os.getuid() == 0:
            raise
        from ferrule.containers.subordinate import remove_mapped

        if not remove_mapped(top):
            raise


def _remove_own(top: Path) -> None:
    try:
        root = os.open(top, OPEN)
    except FileNotFoundError:
        return
    try:
        os.fchmod(root, stat.S_IRWXU)
        there = os.listdir(os.fsencode(f"/proc/self/fd/{root}"))
        taken = set(there)  # also by an attempt before, which ended halfway
        names = (name for number in count() if (name := b".removing-%d" % number) not in taken)
        folders = [name for name in there if not _unlinked(name, root)]
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
