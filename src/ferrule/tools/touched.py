"""The places that a session's calls have touched, for those who have something to say about them."""

import os
import re
from collections.abc import Iterable

from ferrule.tools.effects import CommandEffect, Effect, PatchEffect

MOST = 1_000
"""Paths kept until they are taken, which is before each request: more than the calls of one response touch."""
MAX_WORDS = 64
"""Words of a command that are looked at: what a command names comes early."""
MAX_SCRIPT = 4_096
"""Characters of a script that are looked at: behind them are texts that it writes."""
_WORD = re.compile(r"[^\s'\"`|&;<>()$=*?\[\]{}]+")
"""A run of characters that can be a path as it stands, in any shell."""


class Touched:
    """The absolute paths that calls have touched since they were last taken."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}

    def add(self, paths: Iterable[str]) -> None:
        """Note these paths."""
        if len(self._paths) < MOST:
            self._paths.update(dict.fromkeys(paths))

    def take(self) -> list[str]:
        """Return the paths, sorted because the calls of a response run in any order, and forget them."""
        paths, self._paths = sorted(self._paths), {}
        return paths


def touched_by(effect: Effect) -> list[str]:
    """Return the paths that an effect works in or on. Of a command: its directory, and each word that may be a path."""
    if isinstance(effect, PatchEffect):
        return list(effect.paths)
    if not isinstance(effect, CommandEffect):
        return []
    words = _WORD.findall(" ".join(effect.argv)[:MAX_SCRIPT])[:MAX_WORDS]
    return [effect.cwd, *(os.path.join(effect.cwd, word) for word in words if not word.startswith("-"))]
