"""`open_url`: opens a page on the screen of `computer`, which has no address bar."""

from collections.abc import Sequence

import msgspec
from pydantic import Field

from ferrule.builtin.computer import ACTS, ScreenObservation
from ferrule.builtin.kept_screen import KeptScreen
from ferrule.tools.action import Action
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.effects import ToolEffect
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = "Open a page on the screen. Returns a picture of it."


class OpenUrlAction(Action):
    """A page to open."""

    url: str = Field(description="An address that begins with http:// or https://")


class OpenUrlExecutor(ToolExecutor[OpenUrlAction, ScreenObservation]):
    """Each call goes through `ctx.run` as a whole."""

    asks_first = True

    def __init__(self, state: ConversationState) -> None:
        self._state = state
        self._screen = state.shared.get(KeptScreen)

    async def __call__(self, action: OpenUrlAction, ctx: ToolContext) -> ScreenObservation:
        """Open the page, and look. Raises `RespondToModel`."""
        shown = msgspec.json.encode({"url": action.url}).decode()

        async def open_it(access: Access) -> ScreenObservation:
            return ScreenObservation.of(await self._screen.open_url(self._state, action.url))

        return await ctx.run(ToolEffect(name="open_url", arguments=shown, annotations=ACTS), open_it)


class OpenUrlTool(ToolDefinition[OpenUrlAction, ScreenObservation]):
    """Opens pages on the session's screen."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[OpenUrlTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=OpenUrlExecutor(conv_state), annotations=ACTS, parallel=False)]


TOOL = OpenUrlTool
