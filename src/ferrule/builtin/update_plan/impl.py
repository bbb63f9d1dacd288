"""Tells the front end the plan."""

from ferrule.builtin.update_plan.definition import UpdatePlanAction, UpdatePlanObservation
from ferrule.protocol.events import PlanStep, PlanUpdate
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor


class UpdatePlanExecutor(ToolExecutor[UpdatePlanAction, UpdatePlanObservation]):
    """Has no state: the plan lives in the conversation."""

    async def __call__(self, action: UpdatePlanAction, ctx: ToolContext) -> UpdatePlanObservation:
        """Emit the plan."""
        steps = tuple(PlanStep(step.step, step.status) for step in action.plan)
        ctx.emit(PlanUpdate(plan=steps, explanation=action.explanation))
        return UpdatePlanObservation()
