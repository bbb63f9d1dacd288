"""What `think` takes and answers."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.think import DESCRIPTION
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class ThinkAction(Action):
    """A thought."""

    thought: str = Field(description="The thought")


class ThinkObservation(Observation):
    """The conversation holds the thought; nothing more is to be said."""

    @property
    def to_llm_content(self) -> str:
        return "Your thought has been logged."


class ThinkTool(ToolDefinition[ThinkAction, ThinkObservation]):
    """Does nothing."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ThinkTool]":
        """The one instance."""
        from ferrule.builtin.think.impl import ThinkExecutor

        return [cls(description=DESCRIPTION, executor=ThinkExecutor(), annotations=LOOKS)]
