"""Merge the event stream of Chat Completions into items, tolerating every known server defect."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ferrule.model.calls import CallReader, made_message, made_reasoning
from ferrule.model.chat.calls import CallDelta, CallDeltas, ChatCall, FunctionDelta, placed
from ferrule.model.chat.kept import (
    MESSAGE_FIELDS,
    THINKING_PARTS,
    THOUGHT_FIELDS,
    Fields,
    given,
    merged,
    stored,
    thought_in,
)
from ferrule.model.meanings import Finish, finish_of
from ferrule.model.merger import StreamMerger
from ferrule.model.payloads import Unread, fitting, load
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
    content: str | list[dict[str, Any]] | dict[str, Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    thinking: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    reasoning_opaque: Any = None
    extra_content: Any = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | CallDelta | None = None
    function_call: FunctionDelta | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    error: msgspec.Raw = msgspec.Raw()
    usage: "_Usage | None" = None
    logprobs: msgspec.Raw = msgspec.Raw()


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
    model: Any = None


_decoder = msgspec.json.Decoder(_Chunk)
_plain_decoder = msgspec.json.Decoder()
_NOTHING = (b"", b"null")

_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "tool_search_call": "tsc"}


class _Words:
    """A message, or reasoning, that is still arriving."""

    __slots__ = ("field", "item_id", "kind", "parts", "place")

    def __init__(self, kind: str, item_id: str, place: int, field: str) -> None:
        self.kind = kind
        self.item_id = item_id
        self.place = place
        self.field = field
        self.parts: list[str] = []


class ChatStream(StreamMerger):
    """A merger of one response's payloads. Items follow each other: reasoning, text, calls."""

    def __init__(self, calls: CallReader, server: str) -> None:
        super().__init__(server)
        self._calls = calls
        self._response_id = ""
        self._created = False
        self._words: _Words | None = None
        self._deltas = CallDeltas(calls.declares)
        self._words_of: int | None = None
        self._calls_of: int | None = None
        self._open: list[ChatCall] = []
        self._count = 0
        self._kept: Fields = {}
        self._finish: str | None = None
        self._repeats = False
        self._more = True
        self._usage: TokenUsage | None = None
        self._logprobs = b""

    def _done(self) -> None:
        self.ended = True

    def _is_of_a_call(self, payload: bytes) -> bool:
        return b'"tool_calls"' in payload or b'"function_call"' in payload

    def close(self) -> Sequence[ResponseEvent]:
        """End the stream and complete open items. Raises `ModelError` if the end came too early."""
        self._events = events = list[ResponseEvent]()
        if self._finish is None and not (self.ended and self._count):
            raise self._closed_early("it was finished")
        self._close_all()
        reason = "max_output_tokens" if self._is_cut else None
        events.append(Completed(self._response_id, self._usage, None, reason))
        return events

    def partial(self) -> ResponseItem | None:
        """Return the text of an incomplete message, marked `incomplete`."""
        words = self._words
        if words is None or words.kind != "message":
            return None
        return self._message(words, "incomplete")

    def _take(self, payload: bytes) -> None:
        chunk = load(payload, _decoder)
        if isinstance(chunk, Unread):
            self._pass_over(payload, chunk)
            return
        if isinstance(chunk, dict):
            self._check_error(chunk)
            chunk = fitting(chunk, _Chunk)
        elif bytes(chunk.error) not in _NOTHING or (chunk.choices is None and chunk.usage is None):
            self._check_error(load(payload, _plain_decoder))
        if not self._created and (chunk.id or chunk.choices):
            self._created = True
            self._response_id = chunk.id or ""
            self._events.append(Created(self._response_id, chunk.model if isinstance(chunk.model, str) else ""))
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        for choice in chunk.choices or ():
            self._choice(choice)

    def _check_error(self, payload: object) -> None:
        if (error := read_error(payload)) is not None:
            raise as_model_error(error, self._server)

    def _choice(self, choice: _Choice) -> None:
        """Treat choices as parts of one answer, since only one is requested: text is read from the first that has any,
        calls from the first that has any."""
        delta, number = choice.delta or choice.message, choice.index or 0
        if bytes(choice.error) not in _NOTHING:
            self._check_error({"error": load(bytes(choice.error), _plain_decoder)})
        if choice.usage is not None:
            self._usage = _usage(choice.usage)
        if delta is not None:
            if delta.tool_calls or delta.function_call is not None:
                self._calls_of = number if self._calls_of is None else self._calls_of
            if self._words_of is None and (number == 0 or delta.content):
                self._words_of = number
            self._repeats = self._finish is not None or choice.delta is None
            self._logprobs = _logprobs(choice.logprobs)
            self._delta(delta, words=number == self._words_of, calls=number == self._calls_of)
        if choice.finish_reason and (not number or number in (self._words_of, self._calls_of)):
            self._finished(choice.finish_reason)

    def _delta(self, delta: _Delta, *, words: bool, calls: bool) -> None:
        if words:
            kept = delta.reasoning_details or delta.thinking_blocks or delta.reasoning_opaque or delta.extra_content
            if kept or delta.reasoning_content or delta.reasoning or delta.reasoning_text or delta.thinking:
                self._think(delta)
            if delta.content:
                if isinstance(delta.content, str):
                    self._say("message", delta.content)
                else:
                    self._content_parts([delta.content] if isinstance(delta.content, dict) else delta.content)
            if delta.refusal:
                self._say("refusal", delta.refusal)
        if calls and delta.tool_calls:
            for call in placed(delta.tool_calls):
                self._call_delta(call)
        if calls and delta.function_call is not None:
            self._call_delta(CallDelta(index=0, function=delta.function_call))

    def _think(self, delta: _Delta) -> None:
        """Add reasoning as text, in the server's own form, or both."""
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
        if words is not None and self._repeats and text == "".join(words.parts):
            return  # everything repeated, after the finish reason or as a whole message
        self._more = True
        if words is None or words.kind != kind:
            if not text.strip():
                return  # white space before text or calls is not a message
            self._close_words()
            self._count += 1
            words = self._words = _Words(
                kind, self._item_id("rs" if kind == "reasoning" else "msg"), self._count, field
            )
            self._events.append(ItemAdded(words.item_id, "reasoning" if kind == "reasoning" else "message"))
        words.parts.append(text)
        said = encodable(text)
        if kind == "reasoning":
            self._events.append(ReasoningDelta(words.item_id, said))
        else:
            logprobs, self._logprobs = self._logprobs, b""
            self._events.append(TextDelta(words.item_id, said, refusal=kind == "refusal", logprobs=logprobs))

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
            status = "incomplete" if self._is_cut else "completed"
            self._events.append(ItemDone(self._message(words, status), words.place))

    def _message(self, words: _Words, status: str) -> ResponseItem:
        text = encodable("".join(words.parts))
        return made_message(words.item_id, text, status, refusal=words.kind == "refusal", more=self._taken())

    def _taken(self) -> dict[str, object]:
        """Take the fields that the server wants back, for the item that ends next."""
        kept, self._kept = self._kept, {}
        return stored(kept)

    def _keep_rest(self) -> None:
        """Store fields that arrived after the text in a separate item."""
        if self._kept:
            self._count += 1
            self._events.append(ItemDone(made_reasoning(self._item_id("rs"), more=self._taken()), self._count))

    def _call_delta(self, delta: CallDelta) -> None:
        call, fragment = self._deltas.add(delta)
        if call is None or call.closed:
            return
        if call not in self._open:
            self._close_words()
            self._close_calls(unless=call, only_whole=True)
            self._open.append(call)
            self._more = True
            self._count += 1
            call.place = self._count
        if call.opened is None and call.name and (call.parts or not self._calls.may_grow(call.name)):
            self._open_call(call)
            fragment = call.text
        if call.opened is not None and fragment and not call.is_blank:
            text = call.opened.delta(call.text if call.held else fragment)
            call.held = False
            if text:
                self._events.append(ToolInputDelta(call.item_id, call.opened.call_id, encodable(text)))
        elif fragment:
            call.held = True

    def _open_call(self, call: ChatCall) -> None:
        call.opened = self._calls.open(call.id, call.name or "", None, custom=call.custom)
        call.item_id = f"{_PREFIXES[call.opened.kind]}_{self._response_id or self._calls.new_id()}_{call.place}"
        self._events.append(call.opened.added(call.item_id))

    def _close_calls(self, *, unless: ChatCall | None = None, only_whole: bool = False) -> None:
        """Emit the open calls; while the stream continues, only those with complete arguments."""
        for call in list(self._open):
            if call is unless or (only_whole and (not call.is_whole or call.is_blank)):
                continue
            self._open.remove(call)
            call.closed = True
            if call.opened is None and call.name:
                self._open_call(call)
            if call.opened is not None:
                item = self._calls.finish(call.opened, call.text, None, call.item_id, stored(call.fields))
                self._events.append(ItemDone(item, call.place))

    def _close_all(self) -> None:
        self._close_words()
        self._close_calls()
        self._keep_rest()

    @property
    def _is_cut(self) -> bool:
        return finish_of(self._finish) is Finish.CUT

    def _finished(self, reason: str) -> None:
        meaning = finish_of(reason)
        if meaning is Finish.FAILED:
            raise ModelError(f"{self._server} gave up in the middle of the answer ({reason}).", retryable=True)
        if meaning is Finish.FILTERED:
            raise self._filtered()
        if self._more and not self._is_cut:
            self._finish = reason
        self._more = False
        self.said_all = True
        if self._is_cut:
            self._open = [call for call in self._open if not call.custom]  # half a patch or script must not run
        self._close_calls(only_whole=True)


class _Logprobs(msgspec.Struct):
    content: list[dict[str, Any]] | None = None


def _logprobs(raw: msgspec.Raw) -> bytes:
    """Return the probabilities of a piece of text, as JSON."""
    if bytes(raw) in _NOTHING:
        return b""
    content = msgspec.json.decode(raw, type=_Logprobs).content
    return msgspec.json.encode(content) if content else b""


def _usage(usage: _Usage) -> TokenUsage:
    details = usage.prompt_tokens_details or {}
    cached, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    reasoning = (usage.completion_tokens_details or {}).get("reasoning_tokens") or 0
    return TokenUsage(usage.prompt_tokens or 0, int(cached), usage.completion_tokens or 0, int(reasoning), int(written))
