"""Reads lines of a file, in flat memory."""

import os
from collections.abc import Callable
from itertools import islice

from ferrule.builtin.lines import Source, lines_from, read_lines, skip_lines
from ferrule.builtin.paging import shown_line, whole
from ferrule.builtin.read_file.block import Reach, block_around
from ferrule.builtin.read_file.definition import Indentation, ReadFileAction, ReadFileObservation
from ferrule.patch.encoding import PLAIN
from ferrule.patch.planner import reason
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor

DEFAULT_LIMIT = 2000
"""Lines that models expect where they give no limit."""
MARGIN = 200
"""Lines read above a block, so that blank lines at its start know the indentation that they continue."""


class ReadFileExecutor(ToolExecutor[ReadFileAction, ReadFileObservation]):
    """Runs on a thread: a long file takes a while."""

    def __call__(self, action: ReadFileAction, ctx: ToolContext) -> ReadFileObservation:
        """The lines asked for. Raises `RespondToModel`."""
        offset = whole(action.offset, "offset", 1)
        limit = whole(action.limit, "limit", DEFAULT_LIMIT)
        if offset < 1:
            raise RespondToModel("offset must be a 1-indexed line number")
        if limit < 1:
            raise RespondToModel("limit must be greater than zero")
        if action.mode not in (None, "slice", "indentation"):
            raise RespondToModel(f'mode must be "slice" or "indentation", not {action.mode!r}')
        path = ctx.files.path(action.file_path)
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
