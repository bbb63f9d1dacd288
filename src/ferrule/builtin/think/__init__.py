"""`think`: the model writes a thought down."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.think.definition import ThinkTool

DESCRIPTION = """\
Write a thought down. Nothing is looked up and nothing changes. Use it to reason about a hard step: the possible \
causes of a bug and how to tell them apart, the plan of a larger change, what a test failure means."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("think", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[ThinkTool]":
    """The tool."""
    from ferrule.builtin.think.definition import ThinkTool

    return ThinkTool.create(state)
