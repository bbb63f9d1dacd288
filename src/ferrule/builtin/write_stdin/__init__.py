"""`write_stdin`: give a running session input, and get its output."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.write_stdin.definition import WriteStdinTool

DESCRIPTION = """\
Send input to a session that `exec_command` started, and return what it wrote since the last call. Empty `chars` only \
wait for more output, at least 5 seconds unless the process ends. "\\u0003" interrupts the process; "\\u0004" ends the \
input of one with a terminal."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("write_stdin", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[WriteStdinTool]":
    """The tool."""
    from ferrule.builtin.write_stdin.definition import WriteStdinTool

    return WriteStdinTool.create(state)
