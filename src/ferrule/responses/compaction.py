"""Replace a conversation by a summary: at a client's wish, at a threshold, or to answer `/responses/compact`."""

from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from ferrule.history.compaction import (
    SUMMARY_PROMPT,
    compacted,
    cut_to,
    summary_message,
    user_message,
)
from ferrule.history.tokens import estimate_all
from ferrule.model.stream import Completed, ContextOverflow, ItemDone, Model, ModelError, ModelRequest
from ferrule.protocol.content import text_of
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import Message, ResponseItem
from ferrule.protocol.thoughts import shown

ATTEMPTS = 4
"""Requests for one summary, each with half of what the one before it had, where a server says that it is too long."""


class Summary(msgspec.Struct, frozen=True):
    """A summary, and what it took."""

    text: str
    usage: TokenUsage = TokenUsage()


async def summarised(model: Model, request: ModelRequest) -> Summary:
    """Ask the model for a summary of a request's items. Raises `ModelError`."""
    room = estimate_all(request.items)
    for attempt in range(ATTEMPTS):
        items = request.items if attempt == 0 else tuple(cut_to(request.items, room))
        try:
            return await _asked(model, request, items)
        except ContextOverflow:
            if attempt == ATTEMPTS - 1:
                raise
            room //= 2
    raise AssertionError  # each attempt returns or raises


async def _asked(model: Model, request: ModelRequest, items: Sequence[ResponseItem]) -> Summary:
    asked = msgspec.structs.replace(
        request,
        items=(*items, user_message(SUMMARY_PROMPT)),
        tools=(),
        tool_choice="auto",
        output_format=None,
        lineage=None,
    )
    text, usage = "", TokenUsage()
    async with aclosing(model.stream(asked)) as events:
        async for event in events:
            if isinstance(event, ItemDone) and isinstance(event.item.view, Message):
                text += text_of(event.item.view.content)
            elif isinstance(event, Completed) and event.usage is not None:
                usage = event.usage
    if not (said := shown(text).strip()):
        raise ModelError("The model wrote no summary of the conversation.")
    return Summary(said, usage)


def after_summary(items: Sequence[ResponseItem], summary: str) -> tuple[ResponseItem, ...]:
    """Return the history that replaces `items`: the user's newest words, the summary, and what is unanswered."""
    return compacted(items, opening=(), summary=(summary_message(summary),))
