"""`grep`: which files or lines match a regular expression."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.grep.definition import GrepTool

DESCRIPTION = """\
Search file contents with a regular expression, ignoring case. By default the paths of matching files are returned, \
the last changed first, at most 100; `output_mode` "content" returns the lines instead, "count" how many there are in \
each file. Hidden and ignored files (`.gitignore`) are left out."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("grep", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[GrepTool]":
    """The tool."""
    from ferrule.builtin.grep.definition import GrepTool

    return GrepTool.create(state)
