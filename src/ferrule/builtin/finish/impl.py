"""Hands the last message on."""

from ferrule.builtin.finish.definition import FinishAction, FinishObservation
from ferrule.tools.executor import ToolExecutor


class FinishExecutor(ToolExecutor[FinishAction, FinishObservation]):
    """Has no state; the turn sees `ends_turn`."""

    blocking = False

    def __call__(self, action: FinishAction) -> FinishObservation:
        """The message is the answer."""
        return FinishObservation(message=action.message)
