"""`task_tracker`: the model keeps its list of tasks."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.hints import KEEPS
from ferrule.protocol.events import PlanStep, PlanUpdate
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Keep the list of tasks of a longer piece of work. `plan` replaces the whole list; `view` shows it. One task is \
in_progress at a time; a task is done only when it is complete and checked. A simple request needs no list."""
MARKS = {"todo": "⏳", "in_progress": "🔄", "done": "✅"}


class TaskItem(BaseModel):
    """One task."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    title: str = Field(description="What is to be done, briefly")
    notes: str = Field(default="", description="Anything else to remember about it")
    status: Literal["todo", "in_progress", "done"] = Field(
        default="todo", description="One of: todo, in_progress, done"
    )


class TaskTrackerAction(Action):
    """Look at the list, or replace it."""

    command: Literal["view", "plan"] = Field(
        default="view", description="`view` shows the list, `plan` replaces it by `task_list`"
    )
    task_list: list[TaskItem] = Field(default=[], description="For `plan`: the whole list")


class TaskTrackerObservation(Observation):
    """The list after the command."""

    command: Literal["view", "plan"]
    task_list: list[TaskItem]

    @property
    def to_llm_content(self) -> str:
        if self.command == "plan":
            return f"Task list has been updated with {len(self.task_list)} item(s)."
        if not self.task_list:
            return 'No task list found. Use the "plan" command to create one.'
        return "\n".join(["# Task List", "", *map(_shown, range(1, len(self.task_list) + 1), self.task_list)])


def _shown(number: int, task: TaskItem) -> str:
    notes = f"\n   {task.notes}" if task.notes else ""
    return f"{number}. {MARKS[task.status]} {task.title}{notes}"


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


class TaskTrackerTool(ToolDefinition[TaskTrackerAction, TaskTrackerObservation]):
    """Keeps the list as long as the session lives."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[TaskTrackerTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=TaskTrackerExecutor(), annotations=KEEPS)]


TOOL = TaskTrackerTool
