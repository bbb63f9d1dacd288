"""Takes a thought."""

from ferrule.builtin.think.definition import ThinkAction, ThinkObservation
from ferrule.tools.executor import ToolExecutor


class ThinkExecutor(ToolExecutor[ThinkAction, ThinkObservation]):
    """Has no state."""

    blocking = False

    def __call__(self, action: ThinkAction) -> ThinkObservation:
        """Say that it was taken."""
        return ThinkObservation()
