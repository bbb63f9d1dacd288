"""The body of a Responses request, assembled from encoded bytes."""

import hashlib
from collections.abc import Sequence

import msgspec

from ferrule.model import freeform
from ferrule.model.adapt import WireTools, found_text, knows_tool, wire_name
from ferrule.model.names import Callee
from ferrule.model.outputs import SHOWN, split_output
from ferrule.model.payloads import Json, json_object, without_fields
from ferrule.model.prefix import Piece, PrefixCache
from ferrule.model.recipient import Recipient
from ferrule.model.responses.item_fields import pruned
from ferrule.model.sampling import sampling, schema_format, shared_fields
from ferrule.model.screen_calls import KINDS, as_function
from ferrule.model.stream import ModelRequest
from ferrule.protocol.content import ContentPart, InputText, is_empty
from ferrule.protocol.hosted import is_unfinished
from ferrule.protocol.items import (
    AdditionalTools,
    ApplyPatchCall,
    CodeInterpreterCall,
    Compaction,
    ComputerCall,
    ComputerCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    FileSearchCall,
    FunctionCall,
    FunctionCallOutput,
    ImageGenerationCall,
    ItemView,
    LocalShellCall,
    McpApprovalRequest,
    McpCall,
    McpListTools,
    McpToolCallOutput,
    Message,
    MessageBlock,
    Reasoning,
    ResponseItem,
    ShellCall,
    ToolSearchCall,
    ToolSearchOutput,
    UnknownItem,
    WebSearchCall,
    kind_of,
    make_item,
)
from ferrule.protocol.profiles import ModelProfile

_encode = msgspec.json.encode


LOGPROBS = "message.output_text.logprobs"


class ResponsesBody:
    """A builder of request bodies, for one session and one server."""

    def __init__(self, recipient: Recipient) -> None:
        self._to = recipient
        self._server = recipient.accepts
        self._history = PrefixCache(self._piece)
        self._ids: dict[str, str] = {}
        self._has_screen = any(knows_tool(self._server, "responses", kind) for kind in KINDS)

    def build(self, request: ModelRequest, tools: WireTools, profile: ModelProfile) -> bytes:
        """Build the body. Raises `ModelError` if the tool choice cannot be expressed."""
        server = self._server
        choice, sent = tools.choose(request.tool_choice, server, "responses")
        asked = sampling(request, sent, profile, server)
        items: Sequence[ResponseItem] = request.items
        lineage = request.lineage
        fields = shared_fields(request, asked, choice, sent, server)
        if request.instructions:
            fields["instructions"] = _encode(request.instructions)
        if server.stores and request.previous_response_id:
            fields["previous_response_id"] = _encode(request.previous_response_id)
            items, lineage = items[request.stored_items :], None
        fields["input"] = (b"[", self._history.encode(items, lineage), b"]")
        fields["store"] = _encode(server.stores)
        included = ["reasoning.encrypted_content"] if server.encrypted_reasoning and profile.reasoning else []
        included += [LOGPROBS] if request.settings.top_logprobs is not None else []
        if included := [*included, *request.include]:
            fields["include"] = _encode(included)
        if reasoning := {k: v for k, v in (("effort", asked.effort), ("summary", asked.summary)) if v}:
            fields["reasoning"] = _encode(reasoning)
        if text := _text(request, asked.verbosity):
            fields["text"] = _encode(text)
        if request.compact_threshold is not None:
            fields["context_management"] = _encode(
                [{"type": "compaction", "compact_threshold": request.compact_threshold}]
            )
        if any(tool.kind == "computer_use_preview" for tool in sent):
            fields["truncation"] = b'"auto"'  # which OpenAI's guide to computer use wants of this tool
        if asked.limit is not None:
            fields["max_output_tokens"] = _encode(asked.limit)
        if request.settings.top_logprobs is not None:
            fields["top_logprobs"] = _encode(request.settings.top_logprobs)
        return json_object(without_fields(fields, self._to.omitted.fields))

    def compaction(self, request: ModelRequest) -> bytes:
        """Build the body that asks the server to compact a history."""
        fields: dict[str, Json] = {
            "model": _encode(request.model),
            "instructions": _encode(request.instructions),
            "input": (b"[", self._history.encode(request.items, None), b"]"),
        }
        return json_object(fields)

    def _piece(self, items: Sequence[ResponseItem], start: int) -> Piece:
        """Convert the model's output of one response; or the next item; or a run of outputs that are reduced to text,
        followed by one message with the images."""
        if _is_said(items[start].view):
            return self._response(items, start)
        if self._server.list_outputs or not isinstance(self._answer(items[start].view), _OUTPUTS):
            encoded = self._item(items[start])
            return Piece(start, start + 1, () if encoded is None else (encoded,))
        end = start
        values: list[bytes] = []
        shown: list[ContentPart] = []
        while end < len(items) and isinstance(view := self._answer(items[end].view), _OUTPUTS):
            text, images = split_output(self._to.shown(view.output))
            shown += images
            value = self._encoded(items[end], self._adapted(msgspec.structs.replace(view, output=text)))
            values += [] if value is None else [value]
            end += 1
        if shown:
            values.append(_encode(Message(role="user", content=(InputText(SHOWN), *shown))))
        return Piece(start, end, tuple(values))

    def _answer(self, view: ItemView) -> ItemView:
        """Return the view of an item, that of a screen as the server takes it."""
        if isinstance(view, ComputerCall | ComputerCallOutput):
            return view if self._has_screen and self._to.reads(view.call_id.encode()) else as_function(view)
        return view

    def _response(self, items: Sequence[ResponseItem], start: int) -> Piece:
        """Convert the model's output of one response. Reasoning is sent with what followed it there, or not at all; an
        item without its reasoning is sent without its id, because the server would look for the reasoning by that
        id. Reasoning does not fit a call that is sent in another form."""
        end = start
        while end < len(items) and _is_said(items[end].view) and _response_of(items[end]) == _response_of(items[start]):
            end += 1
        kept: list[ResponseItem] = []
        changed = any(self._answer(item.view) is not item.view for item in items[start:end])
        for item in reversed(items[start:end]):
            if is_unfinished(item.view) or (isinstance(item.view, Message) and is_empty(item.view.content)):
                continue  # some servers refuse a message without text
            if not isinstance(item.view, Reasoning) or (kept and not changed and self._is_replayable(item, item.view)):
                kept.append(item)
        bare = self._server.encrypted_reasoning and len(kept) < end - start
        encoded = [self._item(item, bare=bare) for item in reversed(kept)]
        return Piece(start, end, tuple(value for value in encoded if value is not None))

    def _is_replayable(self, item: ResponseItem, thought: Reasoning) -> bool:
        if "reasoning" in self._to.omitted.kinds or not self._to.reads((thought.id or "").encode()):
            return False
        if thought.encrypted_content and self._may_read(item, thought.encrypted_content):
            return True
        openly = bool(thought.content or thought.summary)
        plain = not self._server.encrypted_reasoning or self._server.stores
        return plain and (openly or not thought.encrypted_content)

    def _may_read(self, item: ResponseItem, secret: str) -> bool:
        return self._to.made(item) and self._to.reads(secret.encode())

    def _item(self, item: ResponseItem, *, bare: bool = False) -> bytes | None:
        """Return the item as the server accepts it; None for one that it would refuse."""
        view = item.view
        if isinstance(view, AdditionalTools) and not self._server.tool_search:
            return None
        if isinstance(view, MessageBlock):
            return None
        if isinstance(view, Compaction) and not self._may_read(item, view.encrypted_content):
            return None
        return self._encoded(item, self._adapted(view), bare=bare)

    def _encoded(self, item: ResponseItem, view: ItemView, *, bare: bool = False) -> bytes | None:
        """Encode the item, read as `view`, with the fields that the server accepts."""
        if view is item.view and item.origin is None and self._is_plain(view):
            return item.raw  # we made it, using only accepted fields
        raw = item.raw if view is item.view else make_item(view).raw
        kind = kind_of(view)
        if kind in self._to.omitted.kinds:
            return None
        changes: dict[str, bytes | None] = {}
        call_id = getattr(view, "call_id", None)
        if call_id is not None and (sent := self._sent_id(item, call_id)) != call_id:
            changes["call_id"] = _encode(sent)
        if isinstance(view, Reasoning) and view.encrypted_content and not self._may_read(item, view.encrypted_content):
            changes["encrypted_content"] = None
        if bare or not self._to.is_own(item) or (self._to.omitted.ids and _is_said(view)):
            changes |= _another_id(view)
        return pruned(raw, status=self._server.call_status, changes=changes, without=self._to.omitted.item_fields)

    def _is_plain(self, view: ItemView) -> bool:
        if self._to.omitted.item_fields or self._to.omitted.kinds:
            return False
        if isinstance(view, FunctionCallOutput | CustomToolCallOutput):
            return not view.failed and self._sent_id_of(view.call_id) == view.call_id
        return isinstance(view, Message) and view.role != "assistant"

    def _sent_id_of(self, call_id: str) -> str:
        return self._ids.get(call_id) or self._to.sent_id(call_id)

    def _sent_id(self, item: ResponseItem, call_id: str) -> str:
        """Return the call's id as sent. An output follows its call, and is sent under the same id."""
        if _is_said(item.view):
            self._ids[call_id] = self._to.sent_id(call_id, item.origin)
        return self._sent_id_of(call_id)

    def _adapted(self, view: ItemView) -> ItemView:
        server = self._server
        view = self._answer(view)
        if isinstance(view, _OUTPUTS) and (output := self._to.shown(view.output)) is not view.output:
            view = msgspec.structs.replace(view, output=output)
        if isinstance(view, Message) and (content := self._to.shown(view.content, tool=False)) is not view.content:
            view = msgspec.structs.replace(view, content=content)
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
        if isinstance(view, ToolSearchCall | ToolSearchOutput) and view.call_id and server.tool_search:
            return view if view.execution == "client" else msgspec.structs.replace(view, execution="client")
        if isinstance(view, ToolSearchCall) and view.call_id and not server.tool_search:
            return FunctionCall(call_id=view.call_id, name="tool_search", arguments=bytes(view.arguments).decode())
        if isinstance(view, ToolSearchOutput) and view.call_id and not server.tool_search:
            return FunctionCallOutput(call_id=view.call_id, output=found_text(view))
        if isinstance(view, Message) and view.role == "developer" and not server.developer_role:
            return msgspec.structs.replace(view, role="system")
        return view


_OUTPUTS = (FunctionCallOutput, CustomToolCallOutput, McpToolCallOutput)
_SAID = (
    Reasoning | FunctionCall | CustomToolCall | ToolSearchCall | LocalShellCall | ShellCall | ApplyPatchCall
    | ComputerCall | WebSearchCall | FileSearchCall | CodeInterpreterCall | ImageGenerationCall | McpListTools
    | McpApprovalRequest | McpCall | MessageBlock
)  # fmt: skip


def _is_said(view: ItemView) -> bool:
    """Return whether the item is the model's output."""
    if isinstance(view, UnknownItem):
        return not view.original_type.endswith("_output")
    return isinstance(view, _SAID) or (isinstance(view, Message) and view.role == "assistant")


def _response_of(item: ResponseItem) -> int | None:
    return None if item.origin is None else item.origin.response or None


def _another_id(view: ItemView) -> dict[str, bytes | None]:
    """Replace an id that the server cannot use, or that contains too much. Messages and reasoning must have one."""
    item_id = getattr(view, "id", None)
    if isinstance(view, Reasoning) or not item_id:
        return {}
    if not isinstance(view, Message):
        return {"id": None}
    return {"id": _encode(f"msg_{hashlib.sha256(item_id.encode()).hexdigest()[:32]}")}


def _text(request: ModelRequest, verbosity: str | None) -> dict[str, object]:
    text: dict[str, object] = {}
    if verbosity:
        text["verbosity"] = verbosity
    if request.output_format is not None:
        schema = schema_format(request.output_format)
        text["format"] = {"type": "json_object"} if schema is None else {"type": "json_schema", **schema}
    return text
