"""`list_dir`: the entries of a directory tree, in order, some at a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.list_dir.definition import ListDirTool

DESCRIPTION = """\
List the entries of a directory tree with 1-indexed entry numbers. Two spaces stand for each level; a name ends with \
`/` for a directory, `@` for a link (not followed), `?` for anything else that is no file."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("list_dir", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[ListDirTool]":
    """The tool."""
    from ferrule.builtin.list_dir.definition import ListDirTool

    return ListDirTool.create(state)
