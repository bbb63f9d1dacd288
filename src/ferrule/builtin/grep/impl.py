"""Searches file contents."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from ferrule.builtin.grep.definition import LIMIT, GrepAction, GrepObservation
from ferrule.builtin.paging import shown_line, shown_name
from ferrule.builtin.searching.door import Searcher, shown_warnings
from ferrule.builtin.searching.request import Found, FoundLine, Search
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.executor import ToolExecutor

MAX_CONTEXT = 50
"""Lines around a match; whoever wants more reads the file."""
MAX_SHOWN_LINES = 500
"""Lines of content; the output budget cuts sooner where they are long."""


class GrepExecutor(ToolExecutor[GrepAction, GrepObservation]):
    """One search, shown in one of three ways."""

    def __init__(self, state: ConversationState) -> None:
        self._searcher = Searcher(state.commands)

    async def __call__(self, action: GrepAction, ctx: ToolContext) -> GrepObservation:
        """The files, lines or counts. Raises `RespondToModel`."""
        if not action.pattern:
            raise RespondToModel("pattern must not be empty")
        context = action.context or 0
        if not 0 <= context <= MAX_CONTEXT:
            raise RespondToModel(f"context must be from 0 to {MAX_CONTEXT}, not {context}")
        path = ctx.files.path(action.path or ctx.cwd)
        content = action.output_mode == "content"
        search = Search(
            path=path,
            cwd=path if os.path.isdir(path) else os.path.dirname(path),
            pattern=action.pattern,
            include=action.include or None,
            ignore_case=True,
            lines=action.output_mode != "files_with_matches",
            before=context if content else 0,
            after=context if content else 0,
            newest=LIMIT,
        )
        found = await self._searcher.search(search)
        shown, files, more = _content(found) if content else _files(found)
        return GrepObservation(
            matches=shown,
            files=files,
            pattern=action.pattern,
            search_path=shown_name(path),
            include_pattern=action.include,
            truncated=more or found.cut,
            warnings=shown_warnings(found.warnings),
        )


def _files(found: Found) -> tuple[list[str], int, bool]:
    """Paths, the last changed first; or paths with their counts, by path."""
    counts = Counter(line.path for line in found.lines if line.matches)
    if counts:
        shown = [f"{shown_name(path)}:{count}" for path, count in sorted(counts.items())[:LIMIT]]
        return shown, len(counts), len(counts) > LIMIT
    return [shown_name(path) for path in found.files], found.count, found.count > LIMIT


def _content(found: Found) -> tuple[list[str], int, bool]:
    """Lines by path and number; `--` stands where lines were left out between two."""
    lines = sorted(found.lines, key=lambda line: (line.path, line.number))
    return list(_shown(lines[:MAX_SHOWN_LINES])), len({line.path for line in lines}), len(lines) > MAX_SHOWN_LINES


def _shown(lines: Sequence[FoundLine]) -> Iterator[str]:
    spaced = any(not line.matches for line in lines)
    before: FoundLine | None = None
    for line in lines:
        if spaced and before and (before.path, before.number + 1) != (line.path, line.number):
            yield "--"
        sign = ":" if line.matches else "-"
        yield f"{shown_name(line.path)}{sign}{line.number}{sign}{shown_line(line.text)}"
        before = line
