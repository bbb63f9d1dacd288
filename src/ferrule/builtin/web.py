"""What the three web tools share."""

from collections.abc import Awaitable, Callable

from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.protocol.web_settings import NO_BACKEND
from ferrule.tools.action import Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.conversation import ConversationState
from ferrule.web.access import NOT_HERE, WebAccess

REACHES = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True, openWorldHint=True)
"""A tool that sends words of the model to the web: under `untrusted` the user is asked."""
URL_FIELD = "The page's address, or the number of a source"


class WebObservation(Observation):
    """Text of the web, marked as such, with the numbers of its sources."""

    text: str

    @property
    def to_llm_content(self) -> str:
        return self.text


async def answered(
    state: ConversationState, tool: str, answer: Callable[[WebAccess], Awaitable[str]]
) -> WebObservation:
    """Return what the model reads. Raises `RespondToModel`, also where a setting is missing or wrong."""
    from ferrule.web.browser import WebRefused

    access = state.web
    missing = NO_BACKEND if access is None else access.missing()
    if access is None or missing is not None:
        raise RespondToModel(NOT_HERE.format(tool=tool, missing=missing))
    try:
        return WebObservation(text=await answer(access))
    except WebRefused as error:
        raise RespondToModel(str(error)) from error
    except UsageError as error:
        raise RespondToModel(NOT_HERE.format(tool=tool, missing=error)) from error
