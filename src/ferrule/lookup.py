"""Find programs where no command can have put them.

A program that we start ourselves, or that a rule frees, runs with all rights. So it never comes from a place that a
command of this or an earlier session could write: not its folder, nor a link on the way, nor anything above.
"""

import errno
import os
import shutil
from collections.abc import Iterator

import msgspec

MAX_LINKS = 40
"""Links on one path, as in the kernel; a longer chain leads nowhere."""


class Places(msgspec.Struct, frozen=True):
    """Where commands can write: below `roots` except below `kept`, and below `opened` in any case. Absolute, real
    paths."""

    roots: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()

    def hold(self, path: str) -> bool:
        """Tell whether a command could put something at this path."""
        return _below(path, self.opened) or (_below(path, self.roots) and not _below(path, self.kept))


NOWHERE = Places()


class Located(msgspec.Struct, frozen=True):
    """The program found, and those before it in PATH that were passed over because commands can write there."""

    path: str | None
    passed_over: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Why no program is used."""
        if not self.passed_over:
            return "it is not installed"
        return f"{self.passed_over[0]} is not used: commands can write there"


def locate(name: str, search: str | None, places: Places) -> Located:
    """Find the first program of this name in the folders of `search` (PATH) that no command can have put there."""
    passed_over: list[str] = []
    for folder in _folders(search):
        found = shutil.which(os.path.join(folder or ".", name))
        if found is None:
            continue
        if not is_exposed(found, places):
            return Located(found, tuple(passed_over))
        passed_over.append(found)
    return Located(None, tuple(passed_over))


def safe_search(search: str | None, places: Places) -> str:
    """Return PATH without the folders that commands can write."""
    return os.pathsep.join(folder for folder in _folders(search) if not is_exposed(folder, places)) or os.defpath


def exposed_folders(search: str | None, places: Places) -> tuple[str, ...]:
    """Return the folders of PATH that commands can write."""
    return tuple(folder for folder in _folders(search) if is_exposed(folder, places))


def _folders(search: str | None) -> list[str]:
    return (os.defpath if search is None else search).split(os.pathsep)


def is_exposed(path: str, places: Places) -> bool:
    """Tell whether a command can decide what the path names: a step of it, following links, lies where commands
    write."""
    if not os.path.isabs(path):
        return True
    try:
        return any(map(places.hold, steps(path)))
    except OSError:
        return True


def steps(path: str) -> Iterator[str]:
    """Yield each step of an absolute path and of the links on it, as a path whose folders are no links. Raises
    `OSError` for links that lead to themselves."""
    here, links = "/", 0
    ahead = path.split("/")[::-1]
    while ahead:
        name = ahead.pop()
        if name == "..":
            here = os.path.dirname(here)
        elif name not in ("", "."):
            step = os.path.join(here, name)
            yield step
            target = _link(step)
            if target is None:
                here = step
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            here = "/" if os.path.isabs(target) else here
            ahead += target.split("/")[::-1]


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except (OSError, ValueError):
        return None


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
