"""`shell`: run one command line and return its output."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.escalation import command_spec, sandbox_text
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.shell.definition import ShellTool

DESCRIPTION = """\
Run a command and return its output. `command` is the program and its arguments; no shell reads them, so put a script \
behind a shell: ["bash", "-lc", "..."]. Set `workdir` instead of using `cd`. The command cannot ask for input. \
Background processes should not outlive it."""
POWERSHELL_DESCRIPTION = """\
Run a command and return its output. `command` is the program and its arguments; put a script behind PowerShell: \
["powershell.exe", "-Command", "Get-ChildItem -Force"]. Set `workdir` instead of using `Set-Location`. The command \
cannot ask for input."""


def describe(state: ConversationState, platform: str = sys.platform) -> str:
    """The description for this session."""
    return f"{POWERSHELL_DESCRIPTION if platform == 'win32' else DESCRIPTION}\n\n{sandbox_text(state)}"


def spec(state: ConversationState, platform: str = sys.platform) -> ToolSpec:
    """What the model sees."""
    return command_spec("shell", describe(state, platform), state)


def create(state: ConversationState) -> "Sequence[ShellTool]":
    """The tool."""
    from ferrule.builtin.shell.definition import ShellTool

    return ShellTool.create(state)
