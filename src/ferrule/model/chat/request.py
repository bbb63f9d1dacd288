"""The body of a Chat Completions request: each item is converted to messages once."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ferrule.model import freeform
from ferrule.model.adapt import WireTools, found_text, wire_name
from ferrule.model.calls import sendable
from ferrule.model.chat.kept import THINKING_PARTS, THOUGHT_FIELDS, Fields, merged, read_fields
from ferrule.model.names import Callee
from ferrule.model.opening import leading_messages, opening
from ferrule.model.outputs import SHOWN, split_output
from ferrule.model.payloads import json_object, without_fields
from ferrule.model.prefix import Piece, PrefixCache
from ferrule.model.recipient import Recipient
from ferrule.model.sampling import sampling, schema_format, shared_fields
from ferrule.model.screen_calls import as_function
from ferrule.model.stream import ModelRequest
from ferrule.protocol.content import (
    ContentPart,
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    ReasoningText,
    text_of,
)
from ferrule.protocol.items import (
    ComputerCall,
    ComputerCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    McpToolCallOutput,
    Message,
    MessageBlock,
    OutputBody,
    Reasoning,
    ResponseItem,
    ToolSearchCall,
    ToolSearchOutput,
)
from ferrule.protocol.payload import ABORTED
from ferrule.protocol.profiles import ModelProfile

NO_THOUGHT = " "
"""Stands for reasoning that the server requires and nobody knows; it treats an empty string as missing."""

NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The signature that Gemini accepts for another model's call. Source: Gemini's documentation of thought signatures."""

_encode = msgspec.json.encode
_Calls = FunctionCall | CustomToolCall | ToolSearchCall | ComputerCall
_Outputs = FunctionCallOutput | CustomToolCallOutput | McpToolCallOutput | ToolSearchOutput | ComputerCallOutput


class ChatBody:
    """A builder of request bodies, for one session and one server."""

    def __init__(self, recipient: Recipient) -> None:
        self._to = recipient
        self._server = recipient.accepts
        self._history = PrefixCache(self._piece)
        self._lineage: tuple[object, int] | None = None

    def build(self, request: ModelRequest, tools: WireTools, profile: ModelProfile) -> bytes:
        """Build the body. Raises `ModelError` if the tool choice cannot be expressed."""
        server = self._server
        choice, sent = tools.choose(request.tool_choice, server, "chat")
        asked = sampling(request, sent, profile, server)
        leading = leading_messages(request.items)
        lineage = None if request.lineage is None else (request.lineage, leading)
        same = lineage == self._lineage  # which begins at the same item
        self._lineage = lineage
        messages = self._history.encode(request.items[leading:], request.lineage if same else None)
        opened = opening(request, leading)
        first = _encode({"role": self._system, "content": opened}) if opened else b""
        fields = shared_fields(request, asked, choice, sent, server)
        fields["messages"] = (b"[", first, b"," if first and messages else b"", messages, b"]")
        if server.usage_in_stream:
            fields["stream_options"] = b'{"include_usage":true}'
        if asked.effort:
            fields["reasoning_effort"] = _encode(asked.effort)
        if asked.verbosity:
            fields["verbosity"] = _encode(asked.verbosity)
        if request.output_format is not None:
            schema = schema_format(request.output_format)
            form = {"type": "json_object"} if schema is None else {"type": "json_schema", "json_schema": schema}
            fields["response_format"] = _encode(form)
        if request.settings.top_logprobs is not None:
            fields |= {"logprobs": b"true", "top_logprobs": _encode(request.settings.top_logprobs)}
        if request.settings.stop:
            fields["stop"] = _encode(request.settings.stop)
        if request.settings.seed is not None:
            fields["seed"] = _encode(request.settings.seed)
        if asked.limit is not None:
            fields[server.max_tokens_field] = _encode(asked.limit)
        fields |= {name: _encode(value) for name, value in server.body.items()}
        return json_object(without_fields(fields, self._to.omitted.fields))

    def messages(self, items: Sequence[ResponseItem]) -> bytes:
        """Return a conversation without its system message as a JSON array."""
        return bytes(b"[" + self._history.encode(items) + b"]")

    @property
    def _system(self) -> str:
        return "developer" if self._server.developer_role else "system"

    def _piece(self, items: Sequence[ResponseItem], start: int) -> Piece:
        """Convert one turn of one side: the user's messages, or the assistant's text and calls with all their
        answers."""
        if _side(items[start].view) == "assistant":
            return self._assistant(items, start)
        end = start
        contents: list[OutputBody] = []
        while end < len(items) and _side(items[end].view) != "assistant":
            view = items[end].view
            if isinstance(view, Message):
                contents.append(self._to.shown(view.content, tool=False))
            end += 1
        return Piece(start, end, self._user(contents))

    def _user(self, contents: list[OutputBody]) -> tuple[bytes, ...]:
        """Return one user message: templates of many models refuse two in a row."""
        parts = [part for content in contents for part in _parts(content)]
        if all(part["type"] == "text" for part in parts):
            text = "\n\n".join(text_of(content) for content in contents)
            return (_encode({"role": "user", "content": text}),) if text else ()
        return (_encode({"role": "user", "content": parts}),)

    def _assistant(self, items: Sequence[ResponseItem], start: int) -> Piece:
        """Merge adjacent assistant items into one message, then answer each call, in the order of the calls.

        User messages in between come after the answers, because nothing may stand between a call and its answer.
        """
        said = _run(items, start)
        calls = [item for item in items[start:said] if isinstance(item.view, _Calls)]
        open_ids = {_call_id(call.view) for call in calls}
        answers: dict[str, _Outputs] = {}
        between: list[OutputBody] = []
        end = said
        while end < len(items) and open_ids - answers.keys() and _side(items[end].view) != "assistant":
            view = items[end].view
            if isinstance(view, _Outputs):
                answers.setdefault(view.call_id or "", view)
            elif isinstance(view, Message):
                between.append(self._to.shown(view.content, tool=False))
            end += 1
        encoded = [*self._message(items[start:said], calls), *self._answers(calls, answers, between)]
        return Piece(start, end, tuple(encoded))

    def _message(self, said: Sequence[ResponseItem], calls: Sequence[ResponseItem]) -> list[bytes]:
        messages = [item.view for item in said if isinstance(item.view, Message)]
        text = "".join(text_of(message.content) for message in messages)
        if not text and not calls:
            return []
        message: dict[str, object] = {"role": "assistant", "content": text}
        if calls:
            message["content"] = text or (None if self._server.null_content else "")
            message["tool_calls"] = [self._call(call) for call in calls]
        return [_encode(self._without_refused(message | self._thoughts(said, text, bool(calls))))]

    def _without_refused(self, message: dict[str, object]) -> dict[str, object]:
        refused = self._to.omitted.item_fields
        return {name: value for name, value in message.items() if name not in refused} if refused else message

    def _thoughts(self, said: Sequence[ResponseItem], text: str, called: bool) -> Fields:
        """Return a message's reasoning in the form the server wants back, and its other non-standard fields."""
        kept: Fields = {}
        texts: dict[str, list[str]] = {}
        for item in said:
            if isinstance(item.view, Message | Reasoning):
                kept = merged(kept, self._kept(item, item.view.chat_fields))
            if (field := self._field(item)) and (thought := _thought(item.view)):
                texts.setdefault(field, []).append(thought)
        fields: Fields = {field: "\n".join(thoughts) for field, thoughts in texts.items()}
        if thoughts := fields.pop(THINKING_PARTS, ""):
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]}
            fields["content"] = [thinking, *([{"type": "text", "text": text}] if text else [])]
        if called and self._server.reasoning_required:
            fields.setdefault(self._server.reasoning_field, NO_THOUGHT)
        return fields | kept

    def _kept(self, item: ResponseItem, fields: msgspec.Raw) -> Fields:
        secret = bytes(fields)
        return read_fields(fields) if secret and self._to.made(item) and self._to.reads(secret) else {}

    def _field(self, item: ResponseItem) -> str:
        """Return the field for an item's reasoning: the one in which this server sent it, else the profile's."""
        wanted = self._server.reasoning_field
        if not isinstance(item.view, Reasoning) or wanted == "none":
            return ""
        given = item.view.chat_field
        if given in (*THOUGHT_FIELDS, THINKING_PARTS) and self._to.is_own(item):
            return given
        return "" if wanted == "same" else wanted

    def _call(self, item: ResponseItem) -> dict[str, object]:
        call = as_function(item.view)
        assert isinstance(call, FunctionCall | CustomToolCall | ToolSearchCall)
        said: dict[str, object] = {"id": self._to.sent_id(_call_id(call), item.origin), "type": "function"}
        said |= self._kept(item, call.chat_fields)
        if self._to.omitted.signatures:
            said.setdefault("extra_content", NO_SIGNATURE)
        said = self._without_refused(said)
        if isinstance(call, ToolSearchCall):
            return said | {"function": {"name": "tool_search", "arguments": bytes(call.arguments).decode()}}
        name = wire_name(Callee(call.name, call.namespace).flat)
        if isinstance(call, FunctionCall):
            return said | {"function": {"name": name, "arguments": sendable(call.arguments)}}
        if self._server.custom_tools:
            return said | {"type": "custom", "custom": {"name": name, "input": call.input}}
        return said | {"function": {"name": name, "arguments": freeform.wrap(call.input)}}

    def _answers(
        self, calls: Sequence[ResponseItem], answers: dict[str, _Outputs], between: list[OutputBody]
    ) -> list[bytes]:
        messages: list[bytes] = []
        shown: list[ContentPart] = []
        for call in calls:
            given = answers.get(_call_id(call.view))
            answer = None if given is None else as_function(given)
            content: object = ABORTED
            if isinstance(answer, ToolSearchOutput):
                content = found_text(answer)
            elif isinstance(answer, FunctionCallOutput | CustomToolCallOutput | McpToolCallOutput):
                output = self._to.shown(answer.output)
                content, images = split_output(output)
                if self._server.list_outputs and images:
                    content = _parts(output)
                else:
                    shown += images
            sent_id = self._to.sent_id(_call_id(call.view), call.origin)
            messages.append(_encode({"role": "tool", "tool_call_id": sent_id, "content": content}))
        if shown:
            between = [(InputText(SHOWN), *shown), *between]
        return [*messages, *self._user(between)]


def _side(view: ItemView) -> str:
    if isinstance(view, _Calls | Reasoning | MessageBlock) or (isinstance(view, Message) and view.role == "assistant"):
        return "assistant"
    return "other"


def _run(items: Sequence[ResponseItem], start: int) -> int:
    end = start
    while end < len(items) and _side(items[end].view) == "assistant":
        end += 1
    return end


def _call_id(call: ItemView) -> str:
    assert isinstance(call, _Calls)
    return call.call_id or call.id or ""


def _thought(view: ItemView) -> str:
    parts = (view.content or ()) if isinstance(view, Reasoning) else ()
    return "\n".join(part.text for part in parts if isinstance(part, ReasoningText))


def _parts(content: OutputBody) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [chat for part in content if (chat := _part(part)) is not None]


def _part(part: ContentPart) -> dict[str, Any] | None:
    match part:
        case InputImage(image_url=str() as url, detail=detail):
            known = {"detail": detail} if detail in ("auto", "low", "high") else {}
            return {"type": "image_url", "image_url": {"url": url} | known}
        case InputFile(file_id=file_id, file_data=data, filename=name):
            given = {"file_id": file_id, "file_data": data, "filename": name}
            return {"type": "file", "file": {key: value for key, value in given.items() if value}}
        case InputAudio(input_audio=audio) if bytes(audio):
            return {"type": "input_audio", "input_audio": audio}
        case _:
            text = text_of((part,))
            return {"type": "text", "text": text} if text else None
