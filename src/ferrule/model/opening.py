"""The beginning of a conversation, for wires that have one place for what stands before it."""

from collections.abc import Sequence

from ferrule.model.stream import ModelRequest
from ferrule.protocol.content import text_of
from ferrule.protocol.items import Message, ResponseItem


def leading_messages(items: Sequence[ResponseItem]) -> int:
    """Count the system and developer messages at the beginning of the history."""
    for index, item in enumerate(items):
        if not (isinstance(item.view, Message) and item.view.role in ("system", "developer")):
            return index
    return len(items)


def opening(request: ModelRequest, leading: int) -> str:
    """Merge the instructions and the leading messages: many templates accept a system message only at the start."""
    views = [item.view for item in request.items[:leading]]
    texts = [request.instructions, *(text_of(view.content) for view in views if isinstance(view, Message))]
    return "\n\n".join(text for text in texts if text)
