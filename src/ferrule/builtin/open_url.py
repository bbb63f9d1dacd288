"""`open_url`: opens a page on the screen of `computer`, which has no address bar."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.computer import ACTS, ScreenObservation
from ferrule.builtin.kept_screen import KeptScreen
from ferrule.tools.action import Action
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = "Open a page on the screen. Returns a picture of it."


class OpenUrlAction(Action):
    """A page to open."""

    url: str = Field(description="An address that begins with http:// or https://")


class OpenUrlExecutor(ToolExecutor[OpenUrlAction, ScreenObservation]):
    """Each call is approved as a whole."""

    def __init__(self, state: ConversationState) -> None:
        self._state = state
        self._screen = state.shared.get(KeptScreen)

    async def __call__(self, action: OpenUrlAction) -> ScreenObservation:
        """Open the page, and look. Raises `RespondToModel`."""
        return ScreenObservation.of(await self._screen.open_url(self._state, action.url))


class OpenUrlTool(ToolDefinition[OpenUrlAction, ScreenObservation]):
    """Opens pages on the session's screen."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[OpenUrlTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=OpenUrlExecutor(conv_state), annotations=ACTS, parallel=False)]


TOOL = OpenUrlTool
