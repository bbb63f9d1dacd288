"""`update_plan`: the model keeps its plan, and the user sees it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.hints import LOOKS
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import PlanStep, PlanUpdate
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Keep the plan of the task: the steps in order, each pending, in_progress or completed, and optionally why the plan \
changed. At most one step is in_progress at a time. Send the whole plan each time."""


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


class UpdatePlanExecutor(ToolExecutor[UpdatePlanAction, UpdatePlanObservation]):
    """Has no state: the plan lives in the conversation."""

    async def __call__(self, action: UpdatePlanAction, ctx: ToolContext) -> UpdatePlanObservation:
        """Emit the plan. Raises `RespondToModel` where more than one step is in progress."""
        under_way = sum(step.status == "in_progress" for step in action.plan)
        if under_way > 1:
            raise RespondToModel(
                f"at most one step can be in_progress at a time, and {under_way} are: send the plan with only one"
            )
        steps = tuple(PlanStep(step.step, step.status) for step in action.plan)
        ctx.emit(PlanUpdate(plan=steps, explanation=action.explanation))
        return UpdatePlanObservation()


TOOL = ToolDefinition(
    name="update_plan", description=DESCRIPTION, executor=UpdatePlanExecutor(), annotations=LOOKS, parallel=False
)
