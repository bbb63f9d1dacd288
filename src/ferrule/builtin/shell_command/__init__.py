"""`shell_command`: run a shell script and return its output."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.shell_command.definition import ShellCommandTool

DESCRIPTION = """\
Run a shell script and return its exit code and output (stdout and stderr in order of arrival). Set `workdir` instead \
of using `cd`. The script cannot ask for input. Background processes should not outlive it."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("shell_command", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[ShellCommandTool]":
    """The tool."""
    from ferrule.builtin.shell_command.definition import ShellCommandTool

    return ShellCommandTool.create(state)
