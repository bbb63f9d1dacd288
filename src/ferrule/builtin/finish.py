"""`finish`: the model ends its work with a message."""

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.tools.action import Action, Observation
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
End the work with a last message to the user: when the task is done, or when you cannot go on. Say what was done and \
how it was checked, what is left, and what you need to know, if anything."""


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


class FinishExecutor(ToolExecutor[FinishAction, FinishObservation]):
    """Has no state; the turn sees `ends_turn`."""

    blocking = False

    def __call__(self, action: FinishAction) -> FinishObservation:
        """The message is the answer."""
        return FinishObservation(message=action.message)


TOOL = ToolDefinition(
    name="finish", description=DESCRIPTION, executor=FinishExecutor(), annotations=LOOKS, parallel=False
)
