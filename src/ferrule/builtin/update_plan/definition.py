"""What `update_plan` takes and answers."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.update_plan import DESCRIPTION
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class Step(BaseModel):
    """One step of the plan."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    step: str
    status: Literal["pending", "in_progress", "completed"] = Field(
        description="One of: pending, in_progress, completed"
    )


class UpdatePlanAction(Action):
    """The whole plan, and why it changed."""

    explanation: str | None = None
    plan: list[Step] = Field(description="The list of steps")


class UpdatePlanObservation(Observation):
    """The plan was taken."""

    @property
    def to_llm_content(self) -> str:
        return "Plan updated"


class UpdatePlanTool(ToolDefinition[UpdatePlanAction, UpdatePlanObservation]):
    """Tells the front end the plan. It touches nothing else."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[UpdatePlanTool]":
        """The one instance."""
        from ferrule.builtin.update_plan.impl import UpdatePlanExecutor

        return [cls(description=DESCRIPTION, executor=UpdatePlanExecutor(), annotations=LOOKS, parallel=False)]
