"""Find where git keeps a repository: `.git` folders, pointers and links, bare and shared repositories.

The rules are git's own (gitrepository-layout(5); `read_gitfile_gently`, `get_common_dir` and `is_git_directory` in its
`setup.c`): a `gitdir:` line is relative to the folder that contains the `.git`, even if that is a link.
"""

import os
from collections.abc import Collection

from ferrule.reading import Unreadable, read_file

LARGEST_POINTER = 1 << 20
"""Bytes of a `gitdir:` file; git reads none that is larger."""


def is_bare_shape(names: Collection[str]) -> bool:
    """Tell whether git treats a folder with these names as a repository without a pointer to it."""
    return "HEAD" in names and (("objects" in names and "refs" in names) or "commondir" in names)


def git_pointer(entry: str) -> str | None:
    """Resolve a `.git`: itself if it is a folder, otherwise the path in the pointer, None if there is none.

    The path need not exist. Raises `Unreadable`.
    """
    return entry if os.path.isdir(entry) else _named_in(entry, "gitdir: ", os.path.dirname(entry))


def common_pointer(git: str) -> str | None:
    """Return the path of the repository that a git directory shares with others; None if it shares none.

    The path need not exist. Raises `Unreadable`.
    """
    return _named_in(os.path.join(git, "commondir"), "", git)


def directories(entry: str) -> tuple[str, ...]:
    """Return the real paths of the git directory behind a `.git` and of the one that it shares, if readable."""
    found: list[str] = []
    try:
        if git := _existing(git_pointer(entry)):
            found.append(git)
            if common := _existing(common_pointer(git)):
                found.append(common)
    except Unreadable:
        pass  # git cannot read it either, or `programs` reports it as unreadable
    return tuple(found)


def _existing(path: str | None) -> str | None:
    return os.path.realpath(path) if path is not None and os.path.exists(path) else None


def _named_in(file: str, prefix: str, base: str) -> str | None:
    """Read the path in a file, which ends at a NUL as git's strings do."""
    try:
        text = os.fsdecode(read_file(file, LARGEST_POINTER).rstrip(b"\r\n").partition(b"\0")[0])
    except FileNotFoundError:
        return None
    if not text.startswith(prefix) or text == prefix:
        return None
    return os.path.join(base, text.removeprefix(prefix))
