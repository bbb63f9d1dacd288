"""`grep`: which files or lines match a regular expression."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.paging import shown_line, shown_name
from ferrule.builtin.searching.door import Searcher, shown_warnings
from ferrule.builtin.searching.request import Found, FoundLine, Search
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Search file contents with a regular expression, ignoring case. By default the paths of matching files are returned, \
the last changed first, at most 100; `output_mode` "content" returns the lines instead, "count" how many there are in \
each file. Hidden and ignored files (`.gitignore`) are left out."""
LIMIT = 100
"""Files that are returned, as models know it."""
Mode = Literal["files_with_matches", "content", "count"]


class GrepAction(Action):
    """A pattern, the place to search, and the form of the answer."""

    pattern: str = Field(description="The regular expression")
    path: str | None = Field(default=None, description="A directory or file; the session's directory by default")
    include: str | None = Field(
        default=None, description='A glob that the files must match, such as "*.js" or "*.{ts,tsx}"'
    )
    output_mode: Mode = Field(
        default="files_with_matches", description='"files_with_matches" (the default), "content" or "count"'
    )
    context: int | None = Field(
        default=None, description="With content: how many lines to show before and after each match; none by default"
    )


class GrepObservation(Observation):
    """Results as they are shown, one a line: paths, lines or counts. `files` is how many files match."""

    matches: list[str]
    files: int
    pattern: str
    search_path: str
    include_pattern: str | None
    truncated: bool
    warnings: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str:
        filtered = f" (filtered by '{self.include_pattern}')" if self.include_pattern else ""
        if not self.matches:
            head = f"No files found containing pattern '{self.pattern}' in directory '{self.search_path}'{filtered}"
            return "\n".join([head, *self.warnings])
        head = f"Found {self.files} file(s) containing pattern '{self.pattern}' in '{self.search_path}'{filtered}:"
        cut = ["", "[Results truncated. Use a more specific pattern or path.]"] if self.truncated else []
        return "\n".join([head, *self.matches, *cut, *self.warnings])


MAX_CONTEXT = 50
"""Lines around a match; whoever wants more reads the file."""
MAX_SHOWN_LINES = 500
"""Lines of content; the output budget cuts sooner where they are long."""


class GrepExecutor(ToolExecutor[GrepAction, GrepObservation]):
    """One search, shown in one of three ways."""

    def __init__(self, state: ConversationState) -> None:
        self._searcher = Searcher(state.commands)

    async def __call__(self, action: GrepAction, ctx: ToolContext) -> GrepObservation:
        """Return the files, lines or counts. Raises `RespondToModel`."""
        if not action.pattern:
            raise RespondToModel("pattern must not be empty")
        context = action.context or 0
        if not 0 <= context <= MAX_CONTEXT:
            raise RespondToModel(f"context must be from 0 to {MAX_CONTEXT}, not {context}")
        path = ctx.files.shown_path(action.path or ctx.cwd)
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
            shown=ctx.files.shown,
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


class GrepTool(ToolDefinition[GrepAction, GrepObservation]):
    """Searches with ripgrep or in Python."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GrepTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=GrepExecutor(conv_state), annotations=LOOKS)]


TOOL = GrepTool
