"""The body of a Messages request: each item is converted to blocks once, and the history is marked for the cache."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ferrule.model import freeform
from ferrule.model.adapt import WireTools, found_text, wire_name
from ferrule.model.calls import sendable
from ferrule.model.messages.blocks import Block, blocks_of, text_block
from ferrule.model.messages.thinking import LEAST_TOP_P, Thought, thought_of
from ferrule.model.names import Callee
from ferrule.model.opening import leading_messages, opening
from ferrule.model.payloads import Json, json_array, json_object, without_fields
from ferrule.model.prefix import Piece, PrefixCache
from ferrule.model.recipient import Recipient
from ferrule.model.sampling import sampling, schema_format
from ferrule.model.screen_calls import as_function
from ferrule.model.stream import ModelRequest
from ferrule.protocol.content import OutputText, Refusal, text_of
from ferrule.protocol.items import (
    ComputerCall,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    McpToolCallOutput,
    Message,
    MessageBlock,
    Reasoning,
    ResponseItem,
    ToolSearchCall,
    ToolSearchOutput,
)
from ferrule.protocol.payload import ABORTED
from ferrule.protocol.profiles import ModelProfile

GO_ON = "Go on."
"""Ends a request whose last message would be the assistant's own."""
BEFORE = "(What was said before is not part of this conversation.)"
"""Begins a request whose first message would be the assistant's own."""
MARK = b',"cache_control":{"type":"ephemeral"}'
"""Marks a block: the prefix up to it is written to the cache, and read from there by the requests that follow."""
THOUGHTS = ("thinking", "redacted_thinking")
LOOKS_BACK = 18
"""Blocks behind the last request's end up to which this request's mark alone finds what that one has written: the
server looks 20 blocks back. After more, that end is marked, too; else it is not, because marks that go change bytes."""
STANDARD_TIERS = ("auto", "standard_only")

_encode = msgspec.json.encode
_Calls = FunctionCall | CustomToolCall | ToolSearchCall
_Outputs = FunctionCallOutput | CustomToolCallOutput | McpToolCallOutput | ToolSearchOutput
_Said = _Calls | ComputerCall | Reasoning | MessageBlock


class MessagesBody:
    """A builder of request bodies, for one session and one server."""

    def __init__(self, recipient: Recipient) -> None:
        self._to = recipient
        self._server = recipient.accepts
        self._history = PrefixCache(self._piece)
        self._lineage: tuple[object, int] | None = None
        self._added = 0
        """Blocks of the last piece."""
        self._answers: list[tuple[int, bool]] = []
        """Where answers begin, and whether thinking may be on behind them: it may not behind calls without thinking."""

    def build(self, request: ModelRequest, tools: WireTools, profile: ModelProfile) -> bytes:
        """Build the body. Raises `ModelError` if the tool choice cannot be expressed."""
        choice, sent = tools.choose(request.tool_choice, self._server, "messages")
        asked = sampling(request, sent, profile, self._server)
        thought = thought_of(request, profile, asked.limit, forced=_is_forced(choice))
        leading = leading_messages(request.items)
        lineage = None if request.lineage is None else (request.lineage, leading)
        same = lineage == self._lineage  # which begins at the same item
        self._lineage = lineage
        messages = self._history.encode(request.items[leading:], request.lineage if same else None)
        if thought.needs_beginning and self._answers and not self._answers[-1][1]:
            thought = thought.off()
        fields: dict[str, Json] = {"model": _encode(request.model), "max_tokens": _encode(thought.limit)}
        mark = b"" if "cache_control" in self._to.omitted.item_fields else MARK
        form = self._format(request)
        system = "\n\n".join(filter(None, (opening(request, leading), _in_words(request) if form is None else "")))
        if system:  # which comes after the tools: its mark is also theirs
            fields["system"] = b"[%b]" % _marked(_encode(text_block(system)), mark)
        if sent:
            fields["tools"] = _tools([tool.json for tool in sent], b"" if system else mark)
            fields["tool_choice"] = _encode(_choice(choice, asked.parallel))
        fields["messages"] = self._messages(messages, mark)
        fields |= self._settings(request, thought, form)
        return json_object(without_fields(fields | {"stream": b"true"}, self._to.omitted.fields))

    def _format(self, request: ModelRequest) -> dict[str, object] | None:
        """Return the form of the last message; None if there is none, or the server takes it only in words."""
        schema = None if request.output_format is None else schema_format(request.output_format)
        refused = not self._to.omitted.fields.isdisjoint(("output_config", "output_config.format"))
        if schema is None or not schema["strict"] or refused:
            return None
        return {"type": "json_schema", "schema": schema["schema"]}

    def _settings(self, request: ModelRequest, thought: Thought, form: dict[str, object] | None) -> dict[str, Json]:
        """Return what the user or the profile sets, where this API has a field for it."""
        settings = request.settings
        fields: dict[str, Json] = {}
        if thought.config is not None:
            fields["thinking"] = _encode(thought.config)
        if settings.temperature is not None and not thought.is_on:
            fields["temperature"] = _encode(settings.temperature)
        if settings.top_p is not None and (settings.top_p >= LEAST_TOP_P or not thought.is_on):
            fields["top_p"] = _encode(settings.top_p)
        if stops := [text for text in settings.stop if text.strip()]:
            fields["stop_sequences"] = _encode(stops)
        if settings.service_tier in STANDARD_TIERS:
            fields["service_tier"] = _encode(settings.service_tier)
        wanted = {name: value for name, value in (("effort", thought.effort), ("format", form)) if value is not None}
        return fields | ({"output_config": _encode(wanted)} if wanted else {})

    def _messages(self, text: bytearray, mark: bytes) -> tuple[bytes | bytearray, ...]:
        """Return the messages, with the end of the last one marked, and that of the one before where it is far, or
        where the last one is a paused answer, which has no mark."""
        if not text:
            return (b'[{"role":"user","content":[', _encode(text_block(GO_ON)), b"]}]")
        pieces: list[bytes | bytearray] = [b"["]
        if text.startswith(b'{"role":"assistant"'):
            pieces.append(_message("user", [text_block(BEFORE)]) + b",")
        start = 0
        ends = self._history.last_values(2)
        if self._added <= LOOKS_BACK and text.startswith(_USERS, ends[-1][0]):
            del ends[:-1]
        for begin, end in ends if mark else ():
            if text.startswith(_USERS, begin):
                pieces += [text[start : end - len(_END)], mark]
                start = end - len(_END)
        return (*pieces, text[start:], b"]")

    # Pieces

    def _piece(self, items: Sequence[ResponseItem], start: int) -> Piece:
        """Convert one turn of one side: the user's messages, or the assistant's answer with all results and what the
        user says then."""
        said = start
        while said < len(items) and _is_said(items[said].view):
            said += 1
        end = said
        while end < len(items) and not _is_said(items[end].view):
            end += 1
        kept = self._kept(_as_functions(items[start:said]), is_last=end == len(items) == said)
        calls = [item for item in kept if isinstance(item.view, _Calls)]
        blocks = [block for item in kept for block in self._blocks(item)]
        while blocks and blocks[-1]["type"] in THOUGHTS and not _is_paused(kept):
            blocks.pop()  # nothing follows it, and the API refuses that
        results = [*self._results(calls, _as_functions(items[said:end])), *self._heard(items[said:end])]
        if blocks and not results and end == len(items):
            if not _is_paused(kept):
                results = [text_block(GO_ON)]
            elif blocks[-1]["type"] == "text":  # the API wants no blanks at its end
                blocks[-1]["text"] = blocks[-1]["text"].rstrip()
        encoded = [_message("assistant", blocks)] if blocks else []
        self._added = len(blocks) + len(results)
        self._note(start, not calls or blocks[0]["type"] in THOUGHTS if blocks else None)
        return Piece(start, end, (*encoded, *([_message("user", results)] if results else ())))

    def _note(self, start: int, thoughtful: bool | None) -> None:
        """Keep whether thinking may be on behind the answer of a piece; None if it has none."""
        while self._answers and self._answers[-1][0] >= start:
            self._answers.pop()
        if thoughtful is not None:
            self._answers.append((start, thoughtful))

    def _kept(self, said: Sequence[ResponseItem], *, is_last: bool) -> list[ResponseItem]:
        """Return what is sent back of answers that follow each other: all of the last one, of earlier ones those that
        the server paused. Others broke off, and the model began anew. So did the last one where nothing follows it."""
        kept: list[ResponseItem] = []
        answers = list(_answers(said))
        for number, answer in enumerate(answers):
            broke_off = answer[0].origin is not None and (is_last or number < len(answers) - 1)
            if _is_paused(answer) or not broke_off or any(isinstance(item.view, _Calls) for item in answer):
                kept += answer
        return kept

    def _blocks(self, item: ResponseItem) -> Iterator[Block]:
        """Yield the blocks of an item of the assistant's."""
        view = item.view
        if isinstance(view, Reasoning):
            yield from self._thinking(item, view)
        elif isinstance(view, MessageBlock):
            fields = self._fields(item, view)
            if fields and fields.get("type") != "pause_turn":
                yield fields
        elif isinstance(view, _Calls):
            yield self._call(item, view)
        elif isinstance(view, Message) and (view.status != "incomplete" or item.origin is not None):
            yield from self._text(item, view)

    def _fields(self, item: ResponseItem, view: Reasoning | MessageBlock | Message | _Calls) -> dict[str, Any]:
        """Return what a block held beside the item, if the server may have it back."""
        secret = bytes(view.message_fields)
        if not secret.startswith(b"{") or not (self._to.made(item) and self._to.reads(secret)):
            return {}
        fields: dict[str, Any] = msgspec.json.decode(secret)
        return {name: value for name, value in fields.items() if name not in self._to.omitted.item_fields}

    def _thinking(self, item: ResponseItem, view: Reasoning) -> list[Block]:
        fields = self._fields(item, view)
        if not fields or fields.get("type") == "redacted_thinking":
            return [fields] if fields else []
        text = "".join(part.text for part in view.content or () if hasattr(part, "text"))
        return [{"type": "thinking", "thinking": text} | fields | {"type": "thinking"}]

    def _text(self, item: ResponseItem, view: Message) -> Iterator[Block]:
        """Yield the texts of a message, each with its citations."""
        parts = (OutputText(view.content),) if isinstance(view.content, str) else view.content
        cited = self._fields(item, view).get("citations")
        cited = cited if isinstance(cited, list) else []
        for number, part in enumerate(parts):
            text = text_of((part,)) if isinstance(part, OutputText | Refusal) or hasattr(part, "text") else ""
            if text.strip():
                notes = cited[number] if number < len(cited) else []
                yield {**text_block(text), **({"citations": notes} if notes else {})}

    def _call(self, item: ResponseItem, call: _Calls) -> Block:
        said: Block = {"type": "tool_use", "id": self._to.sent_id(_call_id(call), item.origin)}
        if isinstance(call, ToolSearchCall):
            name, arguments = "tool_search", bytes(call.arguments).decode()
        elif isinstance(call, FunctionCall):
            name, arguments = wire_name(Callee(call.name, call.namespace).flat), call.arguments
        else:
            name, arguments = wire_name(Callee(call.name, call.namespace).flat), freeform.wrap(call.input)
        return {**said, "name": name, "input": msgspec.Raw(sendable(arguments).encode()), **self._fields(item, call)}

    def _results(self, calls: Sequence[ResponseItem], answers: Sequence[ResponseItem]) -> Iterator[Block]:
        """Yield the result of each call, in the order of the calls."""
        found = {item.view.call_id or "": item.view for item in reversed(answers) if isinstance(item.view, _Outputs)}
        for call in calls:
            assert isinstance(call.view, _Calls)
            call_id = _call_id(call.view)
            result: Block = {"type": "tool_result", "tool_use_id": self._to.sent_id(call_id, call.origin)}
            yield result | self._result(found.get(call_id))

    def _result(self, answer: _Outputs | None) -> Block:
        """Return what a result says. The API takes no failure that holds more than text."""
        if answer is None:
            return {"content": ABORTED, "is_error": True}
        if isinstance(answer, ToolSearchOutput):
            return {"content": found_text(answer)}
        blocks = blocks_of(self._to.shown(answer.output))
        plain = all(block["type"] == "text" for block in blocks)
        said: Block = {"content": blocks[0]["text"] if len(blocks) == 1 and plain else blocks} if blocks else {}
        failed = answer.failed and plain and "is_error" not in self._to.omitted.item_fields
        return said | ({"is_error": True} if failed else {})

    def _heard(self, items: Sequence[ResponseItem]) -> Iterator[Block]:
        """Yield what the user said, or whoever speaks between the answers."""
        for item in items:
            if isinstance(item.view, Message):
                yield from blocks_of(self._to.shown(item.view.content, tool=False))


_END = b"}]}"
"""The end of a message: its last block, its content, itself."""
_USERS = b'{"role":"user"'


def _message(role: str, blocks: Sequence[Block]) -> bytes:
    return _encode({"role": role, "content": blocks})


def _in_words(request: ModelRequest) -> str:
    """Return what the model is told of the form of its last message; empty if there is none."""
    if request.output_format is None:
        return ""
    schema = schema_format(request.output_format)
    if schema is None:
        return "Your last message is one JSON object and nothing else."
    described = _encode(schema["schema"]).decode()
    return f"Your last message is JSON and nothing else, as this JSON Schema describes it:\n{described}"


def _marked(value: bytes, mark: bytes) -> bytes:
    return value[:-1] + mark + value[-1:]


def _tools(tools: Sequence[bytes], mark: bytes) -> bytes:
    return json_array([*tools[:-1], _marked(tools[-1], mark)])


def _is_forced(choice: object) -> bool:
    return choice == "required" or isinstance(choice, dict)


def _choice(choice: object, parallel: bool | None) -> dict[str, object]:
    """Return the choice as this API spells it; `none` goes without a word on parallel calls."""
    said: dict[str, object] = choice if isinstance(choice, dict) else {"type": _CHOICES[str(choice)]}
    return said | ({"disable_parallel_tool_use": True} if parallel is False and said["type"] != "none" else {})


_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def _as_functions(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Return items with the calls of a screen, and their outputs, as those of a function."""
    views = [as_function(item.view) for item in items]
    return [
        item if view is item.view else ResponseItem(item.raw, view, item.origin)
        for item, view in zip(items, views, strict=True)
    ]


def _is_said(view: ItemView) -> bool:
    """Return whether an item is the assistant's."""
    return isinstance(view, _Said) or (isinstance(view, Message) and view.role == "assistant")


def _answers(said: Sequence[ResponseItem]) -> Iterator[list[ResponseItem]]:
    """Yield the answers among items of the assistant's: those that came in one response."""
    answer: list[ResponseItem] = []
    for item in said:
        if answer and _response_of(item) != _response_of(answer[-1]):
            yield answer
            answer = []
        answer.append(item)
    if answer:
        yield answer


def _response_of(item: ResponseItem) -> int | None:
    return None if item.origin is None else item.origin.response or None


def _is_paused(answer: Sequence[ResponseItem]) -> bool:
    """Return whether the server wants an answer sent back as it is, to go on with it."""
    last = answer[-1].view if answer else None
    return isinstance(last, MessageBlock) and b'"pause_turn"' in bytes(last.message_fields)


def _call_id(call: _Calls) -> str:
    return call.call_id or call.id or ""
