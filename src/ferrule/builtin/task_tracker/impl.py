"""Keeps the list and shows it to the user."""

from ferrule.builtin.task_tracker.definition import TaskItem, TaskTrackerAction, TaskTrackerObservation
from ferrule.protocol.events import PlanStep, PlanUpdate
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor

PLAN_STATUS = {"todo": "pending", "in_progress": "in_progress", "done": "completed"}


class TaskTrackerExecutor(ToolExecutor[TaskTrackerAction, TaskTrackerObservation]):
    """Holds the list."""

    def __init__(self) -> None:
        self._tasks: list[TaskItem] = []

    async def __call__(self, action: TaskTrackerAction, ctx: ToolContext) -> TaskTrackerObservation:
        """Replace the list, or leave it; the front end sees a new one as the plan."""
        if action.command == "plan":
            self._tasks = action.task_list
            ctx.emit(PlanUpdate(plan=tuple(PlanStep(task.title, PLAN_STATUS[task.status]) for task in self._tasks)))
        return TaskTrackerObservation(command=action.command, task_list=self._tasks)
