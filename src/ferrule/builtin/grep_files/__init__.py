"""`grep_files`: which files match a regular expression."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.grep_files.definition import GrepFilesTool

DESCRIPTION = """\
Find the files that have a line matching a regular expression, and list their paths, the last changed first. Hidden \
and ignored files (`.gitignore`) are left out."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("grep_files", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[GrepFilesTool]":
    """The tool."""
    from ferrule.builtin.grep_files.definition import GrepFilesTool

    return GrepFilesTool.create(state)
