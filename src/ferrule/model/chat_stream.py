"""The event stream of Chat Completions, merged into items under every defect that servers are known for."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ferrule.model.calls import CallReader, made_message, made_reasoning
from ferrule.model.chat_calls import CallDelta, CallDeltas, ChatCall, FunctionDelta
from ferrule.model.kept import (
    MESSAGE_FIELDS,
    THINKING_PARTS,
    THOUGHT_FIELDS,
    Fields,
    given,
    merged,
    stored,
    thought_in,
)
from ferrule.model.payloads import load
from ferrule.model.refusals import as_model_error, read_error
from ferrule.model.stream import (
    Completed,
    Created,
    ItemAdded,
    ItemDone,
    ModelError,
    ReasoningDelta,
    ResponseEvent,
    TextDelta,
    ToolInputDelta,
)
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.json_text import encodable


class _Delta(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    thinking: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    reasoning_opaque: Any = None
    extra_content: Any = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None


class _Chunk(msgspec.Struct):
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decoder = msgspec.json.Decoder(_Chunk)
_NOTHING = (b"", b"null")

_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "tool_search_call": "tsc"}

_FAILURES = {
    "error": "reported an error in the middle of the answer",
    "insufficient_system_resource": "has no capacity left for the answer",
    "network_error": "lost the model in the middle of the answer",
    "abort": "gave the answer up",
}
"""Reasons to finish that are failures; asking again may help."""


class _Words:
    """A message, or reasoning, that is being said."""

    __slots__ = ("field", "item_id", "kind", "parts", "place")

    def __init__(self, kind: str, item_id: str, place: int, field: str) -> None:
        self.kind = kind
        self.item_id = item_id
        self.place = place
        self.field = field
        self.parts: list[str] = []


class ChatStream:
    """Merges the payloads of one response. Items follow each other: reasoning, words, calls."""

    def __init__(self, calls: CallReader, server: str) -> None:
        self.ended = False
        self.said_all = False
        self.error: ModelError | None = None
        self._calls = calls
        self._server = server
        self._response_id = ""
        self._created = False
        self._words: _Words | None = None
        self._deltas = CallDeltas()
        self._open: list[ChatCall] = []
        self._count = 0
        self._kept: Fields = {}
        self._finish: str | None = None
        self._usage: TokenUsage | None = None
        self._events: list[ResponseEvent] = []

    def feed(self, payloads: Iterable[bytes]) -> Sequence[ResponseEvent]:
        """The events that these payloads bring. An error that the server reports is put into `error`."""
        self._events = events = list[ResponseEvent]()
        try:
            for payload in payloads:
                if payload == b"[DONE]":
                    self.ended = True
                elif not self.ended:
                    self._chunk(payload)
        except ModelError as error:
            self.error = error
        return events

    def close(self) -> Sequence[ResponseEvent]:
        """The stream is over: what is open is whole. Raises `ModelError` where the end came too early."""
        self._events = events = list[ResponseEvent]()
        if self._finish is None:
            if not (self.ended and self._count):
                raise ModelError(f"{self._server} closed the stream before it was finished.", retryable=True)
            self._close_all()
        reason = {"length": "max_output_tokens", "max_tokens": "max_output_tokens"}.get(self._finish or "")
        events.append(Completed(self._response_id, self._usage, None, reason))
        return events

    def partial(self) -> ResponseItem | None:
        """The words of a message that never became whole, marked `incomplete`."""
        words = self._words
        if words is None or words.kind != "message":
            return None
        return self._message(words, "incomplete")

    def _chunk(self, payload: bytes) -> None:
        chunk = load(payload, _decoder)
        if not isinstance(chunk, _Chunk):
            chunk = self._loosely(chunk)
        if bytes(chunk.error) not in _NOTHING or (chunk.choices is None and chunk.usage is None):
            self._check_error(payload)
        if not self._created and (chunk.id or chunk.choices):
            self._created = True
            self._response_id = chunk.id or ""
            self._events.append(Created(self._response_id))
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        for choice in chunk.choices or ():
            if not choice.index:
                self._choice(choice)

    def _loosely(self, chunk: dict[str, Any] | None) -> _Chunk:
        """A chunk that does not fit the type: its error is raised, else what fits is kept."""
        if (error := read_error(chunk)) is not None:
            raise as_model_error(error, self._server)
        choices: list[_Choice] = []
        kept = _Chunk(choices=choices)
        with suppress(msgspec.ValidationError):
            kept.usage = msgspec.convert((chunk or {}).get("usage"), _Usage | None, strict=False)
        for choice in (chunk or {}).get("choices") or ():
            try:
                choices.append(msgspec.convert(choice, _Choice, strict=False))
            except msgspec.ValidationError as problem:
                raise ModelError(f"{self._server} sent a chunk that cannot be read: {problem}.") from problem
        return kept

    def _check_error(self, payload: bytes) -> None:
        if (error := read_error(msgspec.json.decode(payload))) is not None:
            raise as_model_error(error, self._server)

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta or choice.message
        if delta is not None and self._finish is None:
            self._delta(delta)
        if choice.finish_reason and self._finish is None:
            self._finished(choice.finish_reason)

    def _delta(self, delta: _Delta) -> None:
        kept = delta.reasoning_details or delta.thinking_blocks or delta.reasoning_opaque or delta.extra_content
        if kept or delta.reasoning_content or delta.reasoning or delta.reasoning_text or delta.thinking:
            self._think(delta)
        if delta.content:
            if isinstance(delta.content, str):
                self._say("message", delta.content)
            else:
                self._content_parts(delta.content)
        if delta.refusal:
            self._say("refusal", delta.refusal)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._call_delta(call)
        if delta.function_call is not None:
            self._call_delta(CallDelta(index=0, function=delta.function_call))

    def _think(self, delta: _Delta) -> None:
        """Reasoning as text, in its own form, or both."""
        kept = given(delta, MESSAGE_FIELDS)
        if kept:
            self._kept = merged(self._kept, kept)
        said = {name: text for name, text in given(delta, THOUGHT_FIELDS).items() if isinstance(text, str)}
        field, thought = next(iter(said.items()), ("", thought_in(kept)))
        if thought:
            self._say("reasoning", thought, field)

    def _content_parts(self, parts: list[dict[str, Any]]) -> None:
        for part in parts:
            text = part.get("text") or part.get("thinking") or ""
            if isinstance(text, list):
                text = "".join(str(piece.get("text") or "") for piece in text if isinstance(piece, dict))
            if text and part.get("type") == "thinking":
                self._say("reasoning", str(text), THINKING_PARTS)
            elif text:
                self._say("message", str(text))

    def _say(self, kind: str, text: str, field: str = "") -> None:
        words = self._words
        if words is None or words.kind != kind:
            if not text.strip():
                return  # white space before words or calls is no message
            self._close_words()
            self._count += 1
            words = self._words = _Words(
                kind, self._item_id("rs" if kind == "reasoning" else "msg"), self._count, field
            )
            self._events.append(ItemAdded(words.item_id, "reasoning" if kind == "reasoning" else "message"))
        words.parts.append(text)
        event = ReasoningDelta if kind == "reasoning" else TextDelta
        self._events.append(event(words.item_id, encodable(text)))

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._response_id or self._calls.new_id()}_{self._count}"

    def _close_words(self) -> None:
        words, self._words = self._words, None
        if words is None:
            return
        if words.kind == "reasoning":
            more = {**self._taken(), **({"chat_field": words.field} if words.field else {})}
            thought = encodable("".join(words.parts))
            self._events.append(ItemDone(made_reasoning(words.item_id, content=thought, more=more), words.place))
        else:
            status = "incomplete" if self._finish == "length" else "completed"
            self._events.append(ItemDone(self._message(words, status), words.place))

    def _message(self, words: _Words, status: str) -> ResponseItem:
        text = encodable("".join(words.parts))
        return made_message(words.item_id, text, status, refusal=words.kind == "refusal", more=self._taken())

    def _taken(self) -> dict[str, object]:
        """What the server wants back beside the words, as the item that ends next carries it."""
        kept, self._kept = self._kept, {}
        return stored(kept)

    def _keep_rest(self) -> None:
        """What came after the words is kept in an item of its own."""
        if self._kept:
            self._count += 1
            self._events.append(ItemDone(made_reasoning(self._item_id("rs"), more=self._taken()), self._count))

    def _call_delta(self, delta: CallDelta) -> None:
        call, fragment = self._deltas.add(delta)
        if call is None or call.closed:
            return
        if call not in self._open:
            self._close_words()
            self._close_calls(unless=call)
            self._open.append(call)
            self._count += 1
            call.place = self._count
        if call.opened is None and call.name:
            call.opened = self._calls.open(call.id, call.name, None, custom=call.custom)
            call.item_id = f"{_PREFIXES[call.opened.kind]}_{self._response_id or self._calls.new_id()}_{call.place}"
            self._events.append(ItemAdded(call.item_id, call.opened.kind, call.opened.call_id, call.opened.name))
            fragment = call.text
        if call.opened is not None and fragment and (text := call.opened.delta(fragment)):
            self._events.append(ToolInputDelta(call.item_id, call.opened.call_id, encodable(text)))

    def _close_calls(self, *, unless: ChatCall | None = None) -> None:
        """Give out the open calls; while the stream goes on, only those whose arguments are whole."""
        for call in list(self._open):
            if call is unless or (unless is not None and not call.is_whole):
                continue
            self._open.remove(call)
            call.closed = True
            if call.opened is not None:
                item = self._calls.finish(call.opened, call.text, None, call.item_id, stored(call.fields))
                self._events.append(ItemDone(item, call.place))

    def _close_all(self) -> None:
        self._close_words()
        self._close_calls()
        self._keep_rest()

    def _finished(self, reason: str) -> None:
        if reason in _FAILURES:
            raise ModelError(f"{self._server} {_FAILURES[reason]}.", retryable=True)
        if reason == "content_filter":
            raise ModelError(f"The content filter of {self._server} stopped the answer.")
        self._finish = reason
        self.said_all = True
        if reason == "length":
            self._open = [call for call in self._open if not call.custom]  # half a patch or script must not run
        self._close_all()


def _usage(usage: _Usage) -> TokenUsage:
    cached = (usage.prompt_tokens_details or {}).get("cached_tokens") or 0
    reasoning = (usage.completion_tokens_details or {}).get("reasoning_tokens") or 0
    return TokenUsage(usage.prompt_tokens or 0, int(cached), usage.completion_tokens or 0, int(reasoning))
