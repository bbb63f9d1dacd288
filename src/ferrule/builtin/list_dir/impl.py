"""Lists a directory tree in the order of its relative paths, and reads no more of it than is shown."""

import os
from itertools import islice

from ferrule.builtin.list_dir.definition import ListDirAction, ListDirObservation
from ferrule.builtin.paging import shown_name, whole
from ferrule.builtin.tree import Tree
from ferrule.patch.planner import reason
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor

DEFAULT_LIMIT = 25
DEFAULT_DEPTH = 2
"""What models expect where they say nothing."""
SHOWN_PROBLEMS = 5
"""Directories that could not be read and are named."""


class ListDirExecutor(ToolExecutor[ListDirAction, ListDirObservation]):
    """Runs on a thread: a large tree takes a while."""

    def __call__(self, action: ListDirAction, ctx: ToolContext) -> ListDirObservation:
        """The entries asked for. Raises `RespondToModel`."""
        offset = whole(action.offset, "offset", 1)
        limit = whole(action.limit, "limit", DEFAULT_LIMIT)
        depth = whole(action.depth, "depth", DEFAULT_DEPTH)
        if offset < 1:
            raise RespondToModel("offset must be a 1-indexed entry number")
        if limit < 1:
            raise RespondToModel("limit must be greater than zero")
        if depth < 1:
            raise RespondToModel("depth must be greater than zero")
        path = ctx.files.path(action.dir_path)
        if not os.path.isabs(action.dir_path):
            raise RespondToModel("dir_path must be an absolute path")
        return _listed(path, offset, limit, depth)


def _listed(path: str, offset: int, limit: int, depth: int) -> ListDirObservation:
    tree = Tree(path, depth)
    try:
        entries = list(islice(tree, offset - 1, offset + limit))
    except OSError as error:
        raise RespondToModel(f"failed to read directory: {reason(error)}") from error
    if not entries and offset > 1:
        raise RespondToModel("offset exceeds directory entry count")
    return ListDirObservation(
        path=shown_name(path),
        first=offset,
        entries=[f"{'  ' * entry.level}{shown_name(entry.name)}{entry.label}" for entry in entries[:limit]],
        more=len(entries) > limit,
        unreadable=tuple(map(shown_name, tree.problems[:SHOWN_PROBLEMS])),
    )
