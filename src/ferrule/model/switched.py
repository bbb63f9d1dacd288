"""What a conversation holds that the server it goes on with cannot be sent, because it came over another wire."""

from collections.abc import Iterator, Sequence

from ferrule.model.recipient import Recipient
from ferrule.protocol.items import (
    ApplyPatchCall,
    CodeInterpreterCall,
    Compaction,
    FileSearchCall,
    ImageGenerationCall,
    LocalShellCall,
    McpCall,
    MessageBlock,
    Reasoning,
    ResponseItem,
    ShellCall,
    WebSearchCall,
    kind_of,
)

_ELSEWHERE = (
    ApplyPatchCall | CodeInterpreterCall | Compaction | FileSearchCall | ImageGenerationCall
    | LocalShellCall | McpCall | ShellCall | WebSearchCall
)  # fmt: skip
"""Items that the Messages API has no block for."""


def left_behind(items: Sequence[ResponseItem], to: Recipient) -> tuple[str, ...]:
    """Return a sentence that names what is left out, if there is anything."""
    kinds = dict.fromkeys(kind for item in items for kind in _kinds(item, to))
    if not kinds:
        return ()
    return (f"the conversation began with another model or wire; not sent to {to.accepts.title}: {', '.join(kinds)}",)


def _kinds(item: ResponseItem, to: Recipient) -> Iterator[str]:
    view, fields = item.view, bytes(getattr(item.view, "message_fields", b""))
    sent = to.wire == "messages" and bool(fields) and to.made(item)
    if isinstance(view, Reasoning) and (fields or to.wire == "messages") and not sent:
        yield "the reasoning of earlier answers"
    elif isinstance(view, MessageBlock) and not sent and b'"pause_turn"' not in fields:
        yield "tools that the provider ran"
    elif fields and not sent:
        yield "citations" if b'"citations"' in fields else "who called a tool"
    elif to.wire == "messages" and isinstance(view, _ELSEWHERE):
        yield f"items of the kind {kind_of(view)!r}"
