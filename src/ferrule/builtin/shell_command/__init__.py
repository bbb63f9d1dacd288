"""`shell_command`: run a shell script and return its output."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.escalation import command_spec, sandbox_text
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.shell_command.definition import ShellCommandTool

DESCRIPTION = """\
Run a shell script and return its exit code and output (stdout and stderr in order of arrival). Set `workdir` instead \
of using `cd`. The script cannot ask for input. Background processes should not outlive it."""
POWERSHELL_DESCRIPTION = """\
Run a PowerShell script and return its exit code and output, for example `Get-ChildItem -Force` or \
`Select-String -Path src\\*.py -Pattern TODO`. Set `workdir` instead of using `Set-Location`. The script cannot ask \
for input."""


def describe(state: ConversationState, platform: str = sys.platform) -> str:
    """The description for this session."""
    return f"{POWERSHELL_DESCRIPTION if platform == 'win32' else DESCRIPTION}\n\n{sandbox_text(state)}"


def spec(state: ConversationState, platform: str = sys.platform) -> ToolSpec:
    """What the model sees."""
    return command_spec("shell_command", describe(state, platform), state)


def create(state: ConversationState) -> "Sequence[ShellCommandTool]":
    """The tool."""
    from ferrule.builtin.shell_command.definition import ShellCommandTool

    return ShellCommandTool.create(state)
