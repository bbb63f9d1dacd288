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


def git_directory(entry: str) -> str | None:
    """The real path of the git directory that a `.git` stands for, be it a folder, a pointer or a link; None if none.

    Raises `Unreadable`.
    """
    if os.path.isdir(entry):
        return os.path.realpath(entry)
    return _path_in(entry, "gitdir: ", os.path.dirname(entry))


def common_directory(git: str) -> str | None:
    """The real path of the repository that a git directory shares with others; None if it stands alone.

    Raises `Unreadable`.
    """
    return _path_in(os.path.join(git, "commondir"), "", git)


def directories(entry: str) -> tuple[str, ...]:
    """The git directory behind a `.git` and the one that it shares, as far as they can be read; real paths."""
    found: list[str] = []
    try:
        git = git_directory(entry)
        if git is not None:
            found.append(git)
            common = common_directory(git)
            found += [common] if common else []
    except Unreadable:
        pass  # git cannot read it either, or it is told as unreadable by whoever looks for programs
    return tuple(found)


def _path_in(file: str, prefix: str, base: str) -> str | None:
    try:
        text = os.fsdecode(read_file(file, LARGEST_POINTER)).rstrip("\r\n")
    except FileNotFoundError:
        return None
    if not text.startswith(prefix) or "\0" in text or text == prefix:
        return None
    path = os.path.realpath(os.path.join(base, text.removeprefix(prefix)))
    return path if os.path.exists(path) else None
