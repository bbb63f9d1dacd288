"""The one way to search: ripgrep where it is installed, else Python with the same answers."""

import os
from stat import S_ISDIR, S_ISREG

import msgspec

from ferrule.builtin.paging import shown_name
from ferrule.builtin.searching.request import Found, Search
from ferrule.builtin.searching.ripgrep import find_ripgrep, search_with_ripgrep
from ferrule.kernel_files import Shown, refuse_hidden, refuse_kernel_files
from ferrule.patch.paths import unexpanded
from ferrule.patch.planner import reason
from ferrule.process.launcher import LaunchError
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.commands import Commands
from ferrule.tools.files import special_kind
from ferrule.tools.tasks import run_blocking

SHOWN_WARNINGS = 3
"""A model corrects a path or goes on; a longer list of unreadable files helps with neither."""


class Searcher:
    """Looks for ripgrep once. Without one that no command can have put there, Python searches.

    Reading is confined nowhere, and in a sandbox ripgrep takes a quarter longer. So it runs plainly; nobody is asked.
    Where only some folders are shown Python searches, because it can tell where each open file lies.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._program = find_ripgrep(commands.base, commands.places).path

    async def search(self, search: Search) -> Found:
        """Raises `RespondToModel`: the place cannot be searched, the pattern cannot be read, the time is over."""
        _check_place(search.path, search.shown)
        search = msgspec.structs.replace(search, include=_rooted(search.include, search.cwd))
        if self._program is None or search.shown is not None:
            return await self._in_python(search)
        env = await self._commands.environment(login=False)
        try:
            return await search_with_ripgrep(search, self._program, self._commands.plain, env)
        except LaunchError:
            return await self._in_python(search)

    async def _in_python(self, search: Search) -> Found:
        from ferrule.builtin.searching.python import search_in_python

        return await run_blocking(search_in_python, search)


def _rooted(include: str | None, cwd: str) -> str | None:
    """Return an absolute glob as one from `cwd`, where globs start. Raise `RespondToModel` if it leads elsewhere: it
    would match nothing."""
    if include is None:
        return None
    refusal = unexpanded(include, cwd)
    if refusal is not None:
        raise RespondToModel(f"include: {refusal}")
    root = cwd.rstrip("/") + "/"
    if include.startswith(root):
        return include[len(root) - 1 :]
    folder, glob = os.path.split(include)
    first = include.split("/")[1] if include.startswith("/") else ""
    if first and not os.path.lexists(root + first) and os.path.isdir(folder):
        raise RespondToModel(f"include is matched below {cwd}: give {folder} as path, and {glob} as include")
    return include


def _check_place(path: str, shown: Shown) -> None:
    """Raise `RespondToModel` unless the path is a folder or a regular file: ripgrep would wait at a FIFO."""
    try:
        refuse_hidden(os.path.realpath(path), shown)
        refuse_kernel_files(path, below=True)
        mode = os.stat(path).st_mode
    except OSError as error:
        raise RespondToModel(f"unable to access `{path}`: {reason(error)}") from error
    if not (S_ISDIR(mode) or S_ISREG(mode)):
        what = special_kind(mode) or "no regular file"
        raise RespondToModel(f"unable to access `{path}`: it is {what}, not searched")


def shown_warnings(warnings: list[str]) -> tuple[str, ...]:
    """Say in a few lines what could not be searched."""
    lines = [f"Not searched: {shown_name(warning.removeprefix('rg: '))}" for warning in warnings[:SHOWN_WARNINGS]]
    more = len(warnings) - len(lines)
    return (*lines, f"Not searched: {more} more") if more else tuple(lines)
