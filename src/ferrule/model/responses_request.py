"""The body of a Responses request, put together from bytes that exist already."""

from collections.abc import Sequence

import msgspec

from ferrule.model import freeform
from ferrule.model.adapt import WireTools, wire_name
from ferrule.model.names import Callee
from ferrule.model.outputs import SHOWN, split_output
from ferrule.model.payloads import json_array, json_object
from ferrule.model.prefix import Piece, PrefixCache
from ferrule.model.recipient import Recipient
from ferrule.model.sampling import output_format, sampling, shared_fields
from ferrule.model.stream import ModelRequest
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.items import (
    AdditionalTools,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    McpToolCallOutput,
    Message,
    Reasoning,
    ResponseItem,
    ToolSearchCall,
    ToolSearchOutput,
    make_item,
)
from ferrule.protocol.profiles import ModelProfile

_encode = msgspec.json.encode


class ResponsesBody:
    """Builds the bodies of one session's requests for one server."""

    def __init__(self, recipient: Recipient) -> None:
        self._to = recipient
        self._server = recipient.accepts
        self._history = PrefixCache(self._piece)

    def build(self, request: ModelRequest, tools: WireTools, profile: ModelProfile) -> bytes:
        """The body. Raises `ModelError` where the choice of a tool cannot be said."""
        server = self._server
        choice, sent = tools.choose(request.tool_choice, server, "responses")
        asked = sampling(request, sent, profile, server)
        items: Sequence[ResponseItem] = request.items
        fields = shared_fields(request, asked, choice, sent, server)
        if request.instructions:
            fields["instructions"] = _encode(request.instructions)
        if server.stores and request.previous_response_id:
            fields["previous_response_id"] = _encode(request.previous_response_id)
            items = items[request.stored_items :]
        fields["input"] = json_array(self._history.encode(items))
        fields["store"] = _encode(server.stores)
        if server.encrypted_reasoning and profile.reasoning:
            fields["include"] = b'["reasoning.encrypted_content"]'
        if reasoning := {k: v for k, v in (("effort", asked.effort), ("summary", asked.summary)) if v}:
            fields["reasoning"] = _encode(reasoning)
        if text := _text(request, asked.verbosity):
            fields["text"] = _encode(text)
        if request.settings.max_output_tokens is not None:
            fields["max_output_tokens"] = _encode(request.settings.max_output_tokens)
        return json_object(fields)

    def _piece(self, items: Sequence[ResponseItem], start: int) -> Piece:
        """The next item; of a run of outputs that are cut down to text, the images in one message behind them."""
        if self._server.list_outputs or not isinstance(items[start].view, _OUTPUTS):
            encoded = self._item(items[start])
            return Piece(start, start + 1, () if encoded is None else (encoded,))
        end = start
        values: list[bytes] = []
        shown: list[ContentPart] = []
        while end < len(items) and isinstance(view := items[end].view, _OUTPUTS):
            text, images = split_output(view.output)
            shown += images
            values.append(_encode(self._adapted(msgspec.structs.replace(view, output=text))))
            end += 1
        if shown:
            values.append(_encode(Message(role="user", content=(InputText(SHOWN), *shown))))
        return Piece(start, end, tuple(values))

    def _item(self, item: ResponseItem) -> bytes | None:
        """The item as the server takes it; None for one that it would refuse."""
        view = item.view
        if isinstance(view, Reasoning):
            replayable = view.encrypted_content or not self._server.encrypted_reasoning or self._server.stores
            return item.raw if replayable else None
        if isinstance(view, AdditionalTools) and not self._server.tool_search:
            return None
        adapted = self._adapted(view)
        return item.raw if adapted is view else make_item(adapted).raw

    def _adapted(self, view: ItemView) -> ItemView:
        server = self._server
        if isinstance(view, McpToolCallOutput):
            return FunctionCallOutput(call_id=view.call_id, output=view.output)
        if isinstance(view, CustomToolCall) and not server.custom_tools:
            view = FunctionCall(
                call_id=view.call_id, name=view.name, arguments=freeform.wrap(view.input), namespace=view.namespace
            )
        if isinstance(view, CustomToolCallOutput) and not server.custom_tools:
            return FunctionCallOutput(call_id=view.call_id, output=view.output)
        if isinstance(view, FunctionCall | CustomToolCall) and view.namespace and not server.namespaces:
            name = wire_name(Callee(view.name, view.namespace).flat)
            return msgspec.structs.replace(view, name=name, namespace=None)
        if isinstance(view, ToolSearchCall) and view.call_id and not server.tool_search:
            return FunctionCall(call_id=view.call_id, name="tool_search", arguments=bytes(view.arguments).decode())
        if isinstance(view, ToolSearchOutput) and view.call_id and not server.tool_search:
            return FunctionCallOutput(call_id=view.call_id, output=json_array(map(bytes, view.tools)).decode())
        if isinstance(view, Message) and view.role == "developer" and not server.developer_role:
            return msgspec.structs.replace(view, role="system")
        return view


_OUTPUTS = (FunctionCallOutput, CustomToolCallOutput, McpToolCallOutput)


def _text(request: ModelRequest, verbosity: str | None) -> dict[str, object]:
    text: dict[str, object] = {}
    if verbosity:
        text["verbosity"] = verbosity
    if request.output_schema is not None:
        text["format"] = {"type": "json_schema", **output_format(request.output_schema)}
    return text
