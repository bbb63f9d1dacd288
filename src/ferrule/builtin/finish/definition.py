"""What `finish` takes and answers."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.finish import DESCRIPTION
from ferrule.builtin.hints import LOOKS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class FinishAction(Action):
    """The last message."""

    message: str = Field(description="The last message to the user")


class FinishObservation(Observation):
    """The message; the model is not asked again."""

    bounded = True
    ends_turn = True

    message: str

    @property
    def to_llm_content(self) -> str:
        return self.message


class FinishTool(ToolDefinition[FinishAction, FinishObservation]):
    """Ends the turn."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[FinishTool]":
        """The one instance."""
        from ferrule.builtin.finish.impl import FinishExecutor

        return [cls(description=DESCRIPTION, executor=FinishExecutor(), annotations=LOOKS, parallel=False)]
