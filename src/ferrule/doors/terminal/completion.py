"""Completion of `@file` and of `/commands` while they are written."""

import asyncio
import re
import time
from collections.abc import Iterable

import msgspec

from ferrule.rendering.safe import writable
from ferrule.session.file_names import best, files_below
from ferrule.tools.tasks import run_blocking

MOST = 8
"""Suggestions at once."""
FRESH_SECONDS = 15.0
"""A list of files that is older is made anew at the next `@`."""

_AT = re.compile(r"(?:^|(?<=\s))@(\S*)$")


class Suggestion(msgspec.Struct, frozen=True):
    """What stands in place of the word that is written, and what it is."""

    text: str
    about: str = ""


def file_word(before: str) -> str | None:
    """Return what is written of `@file` before the cursor, without the `@`; None where nothing is."""
    found = _AT.search(before)
    return None if found is None else found[1]


def command_word(text: str) -> str | None:
    """Return the command that is being written: the only word, with its slash; None for another text."""
    return text if text.startswith("/") and not re.search(r"\s", text) else None


class Files:
    """The files of the workspace that ignore files leave in, listed by a thread when they are first asked for."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._paths: list[str] = []
        self._listed = float("-inf")
        self._listing: asyncio.Task[list[str]] | None = None

    async def matching(self, query: str) -> list[Suggestion]:
        """Return the best suggestions for what is written. Each key asks anew and cancels what was asked before: they
        all wait for the same list."""
        if time.monotonic() - self._listed > FRESH_SECONDS:
            if self._listing is None:
                self._listing = asyncio.create_task(run_blocking(_listed, self._cwd))
            listing = self._listing
            try:
                self._paths = await asyncio.shield(listing)
            finally:
                if listing.done() and self._listing is listing:
                    self._listing, self._listed = None, time.monotonic()
        return [Suggestion(path) for path in await run_blocking(best, query, self._paths, MOST)]


def _listed(cwd: str) -> list[str]:
    # Others cannot be written here.
    return [path for path in files_below(cwd) if "\n" not in path and writable(path) == path]


def commands_for(word: str, commands: Iterable[tuple[str, str]]) -> list[Suggestion]:
    """Return the commands that begin with what is written, then those that hold it."""
    known = list(commands)
    begin = [Suggestion(name, about) for name, about in known if name.startswith(word)]
    inside = [Suggestion(name, about) for name, about in known if word[1:] in name[1:] and not name.startswith(word)]
    return [*begin, *inside]
