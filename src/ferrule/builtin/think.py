"""`think`: the model writes a thought down."""

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.tools.action import Action, Observation
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Write a thought down. Nothing is looked up and nothing changes. Use it to reason about a hard step: the possible \
causes of a bug and how to tell them apart, the plan of a larger change, what a test failure means."""


class ThinkAction(Action):
    """A thought."""

    thought: str = Field(description="The thought")


class ThinkObservation(Observation):
    """The conversation holds the thought; nothing more is to be said."""

    @property
    def to_llm_content(self) -> str:
        return "Your thought has been logged."


class ThinkExecutor(ToolExecutor[ThinkAction, ThinkObservation]):
    """Has no state."""

    blocking = False

    def __call__(self, action: ThinkAction) -> ThinkObservation:
        """Say that it was taken."""
        return ThinkObservation()


TOOL = ToolDefinition(name="think", description=DESCRIPTION, executor=ThinkExecutor(), annotations=LOOKS)
