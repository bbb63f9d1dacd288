"""`list_dir`: the entries of a directory tree, in order, some at a time."""

import os
from itertools import islice

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.paging import shown_name, whole
from ferrule.builtin.tree import Tree
from ferrule.kernel_files import Shown
from ferrule.patch.planner import reason
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
List the entries of a directory tree with 1-indexed entry numbers. Two spaces stand for each level; a name ends with \
`/` for a directory, `@` for a link (not followed), `?` for anything else that is no file."""


class ListDirAction(Action):
    """A directory and a range of its entries."""

    dir_path: str = Field(description="Absolute path of the directory")
    offset: float | None = Field(default=None, description="The first entry to return, at least 1; 1 by default")
    limit: float | None = Field(default=None, description="The most entries to return; 25 by default")
    depth: float | None = Field(default=None, description="How many levels to descend, at least 1; 2 by default")


class ListDirObservation(Observation):
    """Entries as they are shown, from the number `first` on; `more` says that others follow. `unreadable` are the
    directories below whose entries are unknown."""

    path: str
    first: int
    entries: list[str]
    more: bool
    unreadable: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str:
        lines = [f"Absolute path: {self.path}"]
        lines += [f"E{number}: {entry}" for number, entry in enumerate(self.entries, self.first)]
        if self.more:
            lines.append(f"More than {len(self.entries)} entries found")
        lines += [f"Could not be read: {problem}" for problem in self.unreadable]
        return "\n".join(lines)


DEFAULT_LIMIT = 25
DEFAULT_DEPTH = 2
"""The default that models expect."""
SHOWN_PROBLEMS = 5
"""Directories that could not be read and are named."""


class ListDirExecutor(ToolExecutor[ListDirAction, ListDirObservation]):
    """Runs on a thread: a large tree takes a while."""

    def __call__(self, action: ListDirAction, ctx: ToolContext) -> ListDirObservation:
        """Return the entries asked for. Raises `RespondToModel`."""
        offset = whole(action.offset, "offset", 1)
        limit = whole(action.limit, "limit", DEFAULT_LIMIT)
        depth = whole(action.depth, "depth", DEFAULT_DEPTH)
        if offset < 1:
            raise RespondToModel("offset must be a 1-indexed entry number")
        if limit < 1:
            raise RespondToModel("limit must be greater than zero")
        if depth < 1:
            raise RespondToModel("depth must be greater than zero")
        path = ctx.files.shown_path(action.dir_path)
        if not os.path.isabs(action.dir_path):
            raise RespondToModel("dir_path must be an absolute path")
        return _listed(path, offset, limit, depth, ctx.files.shown)


def _listed(path: str, offset: int, limit: int, depth: int, shown: Shown) -> ListDirObservation:
    tree = Tree(path, depth, shown=shown)
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


TOOL = ToolDefinition(name="list_dir", description=DESCRIPTION, executor=ListDirExecutor(), annotations=LOOKS)
