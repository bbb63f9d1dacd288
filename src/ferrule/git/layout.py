"""Where git keeps a repository: `.git` folders, pointers and links, bare ones, shared ones.

The rules are git's own (gitrepository-layout(5); `read_gitfile_gently`, `get_common_dir` and `is_git_directory` in its
`setup.c`): a `gitdir:` line is relative to the folder in which the `.git` stands, also where that is a link.
"""

import os
from collections.abc import Collection

from ferrule.reading import Unreadable, read_file

LARGEST_POINTER = 1 << 20
"""Bytes of a `gitdir:` file; git reads no larger one."""


def is_bare_shape(names: Collection[str]) -> bool:
    """Whether git takes a folder with these names for a repository without being pointed to it."""
    return "HEAD" in names and (("objects" in names and "refs" in names) or "commondir" in names)


def git_pointer(entry: str) -> str | None:
    """The path that a `.git` stands for: itself if it is a folder, else what the pointer names, None if it names none.

    Nothing needs to lie there. Raises `Unreadable`.
    """
    return entry if os.path.isdir(entry) else _named_in(entry, "gitdir: ", os.path.dirname(entry))


def common_pointer(git: str) -> str | None:
    """The path of the repository that a git directory shares with others; None if it stands alone.

    Nothing needs to lie there. Raises `Unreadable`.
    """
    return _named_in(os.path.join(git, "commondir"), "", git)


def directories(entry: str) -> tuple[str, ...]:
    """The git directory behind a `.git` and the one that it shares, as far as they can be read; real paths."""
    found: list[str] = []
    try:
        if git := _existing(git_pointer(entry)):
            found.append(git)
            if common := _existing(common_pointer(git)):
                found.append(common)
    except Unreadable:
        pass  # git cannot read it either, or it is told as unreadable by whoever looks for programs
    return tuple(found)


def _existing(path: str | None) -> str | None:
    return os.path.realpath(path) if path is not None and os.path.exists(path) else None


def _named_in(file: str, prefix: str, base: str) -> str | None:
    """The path in a file, which ends at a NUL as git's strings do."""
    try:
        text = os.fsdecode(read_file(file, LARGEST_POINTER).rstrip(b"\r\n").partition(b"\0")[0])
    except FileNotFoundError:
        return None
    if not text.startswith(prefix) or text == prefix:
        return None
    return os.path.join(base, text.removeprefix(prefix))
