"""`execute_bash`: a bash that is kept between calls."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.execute_bash.definition import ExecuteBashTool

DESCRIPTION = """\
Run a command in a bash that is kept between calls: variables, functions and the working directory live on.
* One command at a time; chain several with `&&` or `;`, or send a script of several lines.
* A command that writes nothing for 30 seconds, or runs longer than its `timeout`, goes on running, and you get what \
it wrote so far. Then call again with `is_input` true: an empty `command` waits for more, a text is sent to its \
input, "C-c" interrupts it.
* Start servers in the background with their output in a file: `python3 app.py > server.log 2>&1 &`.
* Do not use `set -e` or `exit`: they end the shell, and its state is lost. `reset` starts a new one."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("execute_bash", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[ExecuteBashTool]":
    """The tool."""
    from ferrule.builtin.execute_bash.definition import ExecuteBashTool

    return ExecuteBashTool.create(state)
