"""`request_user_input`: the model asks the user."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.request_user_input.definition import RequestUserInputTool

DESCRIPTION = """\
Ask the user one to three short questions and wait for the answers. Give two or three options where you can; the user \
may always answer in other words. Ask only what you can neither find out nor decide yourself."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("request_user_input", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[RequestUserInputTool]":
    """The tool."""
    from ferrule.builtin.request_user_input.definition import RequestUserInputTool

    return RequestUserInputTool.create(state)
