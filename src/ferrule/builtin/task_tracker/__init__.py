"""`task_tracker`: the model keeps its list of tasks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.task_tracker.definition import TaskTrackerTool

DESCRIPTION = """\
Keep the list of tasks of a longer piece of work. `plan` replaces the whole list; `view` shows it. One task is \
in_progress at a time; a task is done only when it is complete and checked. A simple request needs no list."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("task_tracker", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[TaskTrackerTool]":
    """The tool."""
    from ferrule.builtin.task_tracker.definition import TaskTrackerTool

    return TaskTrackerTool.create(state)
