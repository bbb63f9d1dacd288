"""The body of a request without tools: they stand in the instructions, calls and outputs in the messages."""

from collections.abc import Sequence

import msgspec

from ferrule.model.adapt import WireTools, found_text, wire_name
from ferrule.model.calls import sendable
from ferrule.model.chat.request import ChatBody
from ferrule.model.names import Callee
from ferrule.model.outputs import split_output
from ferrule.model.recipient import Recipient
from ferrule.model.screen_calls import as_function
from ferrule.model.stream import ModelRequest
from ferrule.model.text.prompt import call_text, freeform_text, instructions, output_text
from ferrule.protocol.content import InputText, OutputText
from ferrule.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    McpToolCallOutput,
    Message,
    ResponseItem,
    ToolSearchCall,
    ToolSearchOutput,
    make_item,
)
from ferrule.protocol.profiles import ModelProfile


class TextBody:
    """A builder of request bodies around the one of the Chat wire. Each item is rewritten once."""

    def __init__(self, recipient: Recipient) -> None:
        self._to = recipient
        self._chat = ChatBody(recipient)
        self._items: list[ResponseItem] = []
        self._rewritten: list[ResponseItem] = []

    def build(self, request: ModelRequest, tools: WireTools, profile: ModelProfile) -> bytes:
        """Build the body. Raises `ModelError` if a tool is forced that does not exist."""
        tools.choose(request.tool_choice, self._to.accepts, "chat")
        as_text = msgspec.structs.replace(
            request,
            instructions=instructions(request, tools),
            items=self._as_text(request.items),
            tools=(),
            tool_choice="auto",
            output_format=None if tools.tools else request.output_format,
        )
        return self._chat.build(as_text, WireTools.empty(), profile)

    def _as_text(self, items: Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
        same = 0
        for one, other in zip(self._items, items, strict=False):
            if one is not other:
                break
            same += 1
        self._items = list(items)
        self._rewritten = [*self._rewritten[:same], *map(self._rewrite, items[same:])]
        return tuple(self._rewritten)

    def _rewrite(self, item: ResponseItem) -> ResponseItem:
        view = self._view(item.view)
        return item if view is None else make_item(view)

    def _view(self, view: ItemView) -> Message | None:
        """Return a call or an output as a message; None for everything else."""
        view = as_function(view)
        match view:
            case FunctionCall():
                return _said(call_text(_name(view.name, view.namespace), sendable(view.arguments)))
            case CustomToolCall():
                return _said(freeform_text(_name(view.name, view.namespace), view.input))
            case ToolSearchCall():
                return _said(call_text("tool_search", bytes(view.arguments).decode() or "{}"))
            case ToolSearchOutput():
                return _answered(output_text(found_text(view)))
            case FunctionCallOutput() | CustomToolCallOutput() | McpToolCallOutput():
                text, others = split_output(self._to.shown(view.output))
                return Message(role="user", content=(InputText(output_text(text)), *others))
        return None


def _name(name: str, namespace: str | None) -> str:
    return wire_name(Callee(name, namespace).flat)


def _said(text: str) -> Message:
    return Message(role="assistant", content=(OutputText(text),))


def _answered(text: str) -> Message:
    return Message(role="user", content=(InputText(text),))
