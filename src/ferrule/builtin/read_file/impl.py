"""Reads lines of a file, in flat memory."""

import os
from io import FileIO
from itertools import islice

from ferrule.builtin.lines import is_binary, lines_from, skip_lines
from ferrule.builtin.paging import shown_line, whole
from ferrule.builtin.read_file.block import Reach, block_around
from ferrule.builtin.read_file.definition import Indentation, ReadFileAction, ReadFileObservation
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
        if not os.path.isabs(action.file_path):
            raise RespondToModel("file_path must be an absolute path")
        try:
            with ctx.files.open(action.file_path) as file:
                if is_binary(file):
                    raise RespondToModel(f"failed to read file: {action.file_path} is a binary file")
                if action.mode == "indentation":
                    return _block(file, offset, limit, action.indentation or Indentation())
                return _slice(file, offset, limit)
        except OSError as error:
            raise RespondToModel(f"failed to read file: {reason(error)}") from error


def _slice(file: FileIO, offset: int, limit: int) -> ReadFileObservation:
    lines = list(islice(lines_from(file), limit)) if skip_lines(file, offset - 1) else []
    if not lines:
        raise RespondToModel("offset exceeds file length")
    return ReadFileObservation(first=offset, lines=[shown_line(line) for line in lines])


def _block(file: FileIO, offset: int, limit: int, options: Indentation) -> ReadFileObservation:
    anchor = whole(options.anchor_line, "anchor_line", offset)
    levels = whole(options.max_levels, "max_levels", 0)
    most = whole(options.max_lines, "max_lines", limit)
    if anchor < 1:
        raise RespondToModel("anchor_line must be a 1-indexed line number")
    if most < 1:
        raise RespondToModel("max_lines must be greater than zero")
    if levels < 0:
        raise RespondToModel("max_levels must not be negative")
    cap = min(limit, most)
    first = max(1, anchor - cap - MARGIN)
    found = skip_lines(file, first - 1)
    lines = list(islice(lines_from(file), anchor - first + cap + 1)) if found else []
    if len(lines) <= anchor - first:
        raise RespondToModel("anchor_line exceeds file length")
    reach = Reach(
        levels=levels,
        siblings=bool(options.include_siblings),
        header=options.include_header is not False,
        cap=cap,
    )
    chosen = block_around(lines, anchor - first, reach)
    return ReadFileObservation(first=first + chosen.start, lines=[shown_line(lines[i]) for i in chosen])
