"""`exec_command`: start a shell command that may go on running as a session."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.escalation import command_spec, sandbox_text
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.exec_command.definition import ExecCommandTool

DESCRIPTION = """\
Run a shell command and return its output, or, if it still runs after `yield_time_ms`, what it wrote so far and a \
session ID; `write_stdin` then gives it input and gets the rest. Programs that need a terminal or input want `tty` set \
to true. Servers and other background processes belong in a session of their own: one that is started with `&` may end \
with its shell."""
POWERSHELL_DESCRIPTION = """\
Run a PowerShell command and return its output, or, if it still runs after `yield_time_ms`, what it wrote so far and \
a session ID; `write_stdin` then gives it input and gets the rest. Programs that need a terminal or input want `tty` \
set to true."""


def describe(state: ConversationState, platform: str = sys.platform) -> str:
    """The description for this session."""
    return f"{POWERSHELL_DESCRIPTION if platform == 'win32' else DESCRIPTION}\n\n{sandbox_text(state)}"


def spec(state: ConversationState, platform: str = sys.platform) -> ToolSpec:
    """What the model sees."""
    return command_spec("exec_command", describe(state, platform), state)


def create(state: ConversationState) -> "Sequence[ExecCommandTool]":
    """The tool."""
    from ferrule.builtin.exec_command.definition import ExecCommandTool

    return ExecCommandTool.create(state)
