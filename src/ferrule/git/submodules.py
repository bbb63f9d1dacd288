"""Read the folders that a worktree's `.gitmodules` names (gitmodules(5))."""

import os

from ferrule.git.config import ConfigError, parse_config
from ferrule.reading import Unreadable, read_file

LARGEST_MODULES = 1 << 18
"""Bytes of a `.gitmodules`: some thousand submodules."""
MAX_SUBMODULES = 200
"""Submodules of one repository: enough for real ones, and a bound if a command makes them up."""


def submodule_folders(top: str) -> tuple[str, ...]:
    """Return the real paths of the folders below `top` that submodules have or will have; none for an unreadable
    list."""
    try:
        text = read_file(f"{top}/.gitmodules", LARGEST_MODULES).decode("utf-8", "surrogateescape")
        paths = [entry.value for entry in parse_config(text) if (entry.section, entry.name) == ("submodule", "path")]
    except (FileNotFoundError, Unreadable, ConfigError):
        return ()
    real = os.path.realpath(top)
    folders = (os.path.normpath(f"{real}/{path}") for path in paths[:MAX_SUBMODULES] if "\0" not in path)
    return tuple(folder for folder in folders if folder.startswith(f"{real}/"))
