"""`read_file`: numbered lines of a file, by range or by indentation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.read_file.definition import ReadFileTool

DESCRIPTION = """\
Read a text file with 1-indexed line numbers. Mode "slice" (the default) returns a range of lines; mode "indentation" \
returns the block of code around an anchor line, as far as its indentation reaches."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("read_file", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[ReadFileTool]":
    """The tool."""
    from ferrule.builtin.read_file.definition import ReadFileTool

    return ReadFileTool.create(state)
