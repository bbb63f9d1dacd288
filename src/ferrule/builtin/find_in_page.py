"""`find_in_page`: the places of a text in a page of the web."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.web import REACHES, URL_FIELD, WebObservation, answered
from ferrule.tools.action import Action
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.web.access import WebAccess

DESCRIPTION = """\
Find each place of a text in a page of the web; upper and lower case count the same."""


class FindInPageAction(Action):
    """A text to find in a page."""

    url: str = Field(description=URL_FIELD)
    pattern: str = Field(description="The text to find")


class FindInPageExecutor(ToolExecutor[FindInPageAction, WebObservation]):
    """Runs as a whole in one `ctx.run`: a page that is not open yet is opened."""

    def __init__(self, state: ConversationState) -> None:
        self._state = state

    async def __call__(self, action: FindInPageAction) -> WebObservation:
        """Find the text."""

        async def find(access: WebAccess) -> str:
            from ferrule.web.browser import Wishes

            return await access.browser.find(action.url, action.pattern, access.memory, Wishes())

        return await answered(self._state, "find_in_page", find)


class FindInPageTool(ToolDefinition[FindInPageAction, WebObservation]):
    """Looks into the pages that the session has open."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[FindInPageTool]":
        """Create one for the conversation."""
        executor = FindInPageExecutor(conv_state)
        return [cls(description=DESCRIPTION, executor=executor, annotations=REACHES, parallel=True)]


TOOL = FindInPageTool
