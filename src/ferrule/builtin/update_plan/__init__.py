"""`update_plan`: the model keeps its plan, and the user sees it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.update_plan.definition import UpdatePlanTool

DESCRIPTION = """\
Keep the plan of the task: the steps in order, each pending, in_progress or completed, and optionally why the plan \
changed. At most one step is in_progress at a time. Send the whole plan each time."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("update_plan", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[UpdatePlanTool]":
    """The tool."""
    from ferrule.builtin.update_plan.definition import UpdatePlanTool

    return UpdatePlanTool.create(state)
