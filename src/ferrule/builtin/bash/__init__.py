"""`bash`: Claude's bash, kept between calls."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.bash.definition import BashTool

DESCRIPTION = """\
Run a command in a bash that is kept between calls: variables, functions and the working directory live on. It \
cannot ask for input. A command that runs longer than two minutes is ended: start servers in the background with \
their output in a file. `restart` starts a new shell."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("bash", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[BashTool]":
    """The tool."""
    from ferrule.builtin.bash.definition import BashTool

    return BashTool.create(state)
