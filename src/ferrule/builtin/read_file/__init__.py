"""`read_file`: numbered lines of a file, by range or by indentation."""

import os
from collections.abc import Callable
from itertools import islice

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.lines import Source, lines_from, read_lines, skip_lines
from ferrule.builtin.paging import shown_line, whole
from ferrule.builtin.read_file.block import Reach, block_around
from ferrule.patch.encoding import PLAIN
from ferrule.patch.planner import reason
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.tasks import run_blocking

DESCRIPTION = """\
Read a text file with 1-indexed line numbers. Mode "slice" (the default) returns a range of lines; mode "indentation" \
returns the block of code around an anchor line, as far as its indentation reaches."""
EMPTY = "(The file is empty.)"


class Indentation(BaseModel):
    """The reach of the indentation mode."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    anchor_line: float | None = Field(default=None, description="The line to start from; `offset` by default")
    max_levels: float | None = Field(
        default=None, description="How many levels of enclosing blocks to include; 0 (the default) is all of them"
    )
    include_siblings: bool | None = Field(
        default=None, description="Whether to include the blocks beside it at the same indentation; false by default"
    )
    include_header: bool | None = Field(
        default=None, description="Whether to include the comments directly above the block; true by default"
    )
    max_lines: float | None = Field(default=None, description="The most lines to return; `limit` by default")


class ReadFileAction(Action):
    """A file and a range of its lines."""

    file_path: str = Field(description="Absolute path to the file")
    offset: float | None = Field(default=None, description="The first line to return, at least 1; 1 by default")
    limit: float | None = Field(default=None, description="The most lines to return; 2000 by default")
    mode: str | None = Field(default=None, description='"slice" (the default) or "indentation"')
    indentation: Indentation | None = Field(default=None, description='Options of the mode "indentation"')


class ReadFileObservation(Observation):
    """Lines and the number of the first. `encoding`: what the file is in, if that is not UTF-8."""

    first: int
    lines: list[str]
    encoding: str | None = None

    @property
    def to_llm_content(self) -> str:
        if not self.lines:
            return EMPTY
        shown = [f"L{number}: {line}" for number, line in enumerate(self.lines, self.first)]
        if self.encoding is not None:
            shown.append(f"(The file is {self.encoding}. Edits keep that.)")
        return "\n".join(shown)


DEFAULT_LIMIT = 2000
"""Lines that models expect where they give no limit."""
MARGIN = 200
"""Lines read above a block, so that blank lines at its start know the indentation that they continue."""


class ReadFileExecutor(ToolExecutor[ReadFileAction, ReadFileObservation]):
    """Reads on a thread: a long file takes a while."""

    async def __call__(self, action: ReadFileAction, ctx: ToolContext) -> ReadFileObservation:
        """Return the lines asked for. Raises `RespondToModel`."""
        return await run_blocking(_read, action, await ctx.seeing(action.file_path))


def _read(action: ReadFileAction, ctx: ToolContext) -> ReadFileObservation:
    offset = whole(action.offset, "offset", 1)
    limit = whole(action.limit, "limit", DEFAULT_LIMIT)
    if offset < 1:
        raise RespondToModel("offset must be a 1-indexed line number")
    if limit < 1:
        raise RespondToModel("limit must be greater than zero")
    if action.mode not in (None, "slice", "indentation"):
        raise RespondToModel(f'mode must be "slice" or "indentation", not {action.mode!r}')
    path = ctx.files.shown_path(action.file_path)
    if not os.path.isabs(action.file_path):
        raise RespondToModel("file_path must be an absolute path")
    choice = _slice(offset, limit)
    if action.mode == "indentation":
        choice = _block(offset, limit, action.indentation or Indentation())
    first = offset

    def take(file: Source) -> list[bytes]:
        nonlocal first
        first, lines = choice(file)
        return lines

    try:
        with ctx.files.open(path) as file:
            empty = offset == 1 and os.fstat(file.fileno()).st_size == 0
            lines, encoding = ([], PLAIN) if empty else read_lines(file, f"failed to read file: {path}", take)
    except OSError as error:
        raise RespondToModel(f"failed to read file: {reason(error)}") from error
    return ReadFileObservation(
        first=first,
        lines=[shown_line(line) for line in lines],
        encoding=None if encoding.is_utf8 else encoding.described,
    )


Choice = Callable[[Source], tuple[int, list[bytes]]]
"""From a file at its start to the lines that were asked for, and the number of the first."""


def _slice(offset: int, limit: int) -> Choice:
    def choice(file: Source) -> tuple[int, list[bytes]]:
        lines = list(islice(lines_from(file), limit)) if skip_lines(file, offset - 1) else []
        if not lines:
            raise RespondToModel("offset exceeds file length")
        return offset, lines

    return choice


def _block(offset: int, limit: int, options: Indentation) -> Choice:
    anchor = whole(options.anchor_line, "anchor_line", offset)
    levels = whole(options.max_levels, "max_levels", 0)
    most = whole(options.max_lines, "max_lines", limit)
    if anchor < 1:
        raise RespondToModel("anchor_line must be a 1-indexed line number")
    if most < 1:
        raise RespondToModel("max_lines must be greater than zero")
    if levels < 0:
        raise RespondToModel("max_levels must not be negative")
    reach = Reach(
        levels=levels,
        siblings=bool(options.include_siblings),
        header=options.include_header is not False,
        cap=min(limit, most),
    )
    first = max(1, anchor - reach.cap - MARGIN)

    def choice(file: Source) -> tuple[int, list[bytes]]:
        found = skip_lines(file, first - 1)
        lines = list(islice(lines_from(file), anchor - first + reach.cap + 1)) if found else []
        if len(lines) <= anchor - first:
            raise RespondToModel("anchor_line exceeds file length")
        chosen = block_around(lines, anchor - first, reach)
        return first + chosen.start, [lines[i] for i in chosen]

    return choice


TOOL = ToolDefinition(name="read_file", description=DESCRIPTION, executor=ReadFileExecutor(), annotations=LOOKS)
