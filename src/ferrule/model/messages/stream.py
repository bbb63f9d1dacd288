"""Merge the event stream of the Messages API into items.

Blocks come one after the other, and each is known to be whole. Adjacent text blocks are the parts of one message. What
a block holds beside its item (signatures, citations) stays with the item, as `message_fields`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ferrule.model.calls import CallReader, OpenCall, made_message, made_reasoning
from ferrule.model.meanings import Finish, finish_of
from ferrule.model.merger import StreamMerger
from ferrule.model.messages import events
from ferrule.model.messages.words import Words
from ferrule.model.payloads import Unread, fitting, is_object, load
from ferrule.model.refusals import DOES_NOT_FIT, as_model_error, read_error
from ferrule.model.stream import (
    Completed,
    ContentFiltered,
    ContextOverflow,
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
from ferrule.protocol.items import ResponseItem, read_item
from ferrule.protocol.json_text import encodable

CALLS = "tool_use"
PAUSE = "pause_turn"
CONTEXT = "model_context_window_exceeded"
CUT = "max_output_tokens"
"""The reason of an answer that reached its limit, as both other wires have it."""

_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "tool_search_call": "tsc"}
_CALL_KEYS = frozenset({"type", "id", "name", "input"})
_NULLS = (b"", b"null")


class _Block:
    """A block that is arriving."""

    __slots__ = ("call", "closed", "head", "item_id", "kind", "parts", "place", "raw", "signature")

    def __init__(self, head: events.Head, raw: bytes, item_id: str, place: int) -> None:
        self.kind = head.type
        self.head = head
        self.raw = raw
        self.item_id = item_id
        self.place = place
        self.parts: list[str] = []
        self.signature = head.signature or ""
        self.call: OpenCall | None = None
        self.closed = False

    @property
    def input(self) -> str:
        """The JSON of its input; some servers send it whole when the block begins."""
        given = bytes(self.head.input)
        return "".join(self.parts) or (given.decode() if given not in (*_NULLS, b"{}") else "")

    def rest(self, known: frozenset[str]) -> dict[str, msgspec.Raw]:
        """Return its other fields."""
        fields = events.read_fields(self.raw)
        return {name: value for name, value in fields.items() if name not in known and bytes(value) not in _NULLS}


class MessagesStream(StreamMerger):
    """A merger of one message's payloads. `ended` once its last event came."""

    def __init__(self, calls: CallReader, server: str) -> None:
        super().__init__(server)
        self._calls = calls
        self._message_id = ""
        self._blocks: list[_Block] = []
        self._words: Words | None = None
        self._held: list[_Block] = []
        """Calls whose input was not whole when their block ended."""
        self._places = 0
        self._usage = events.Usage()
        self._reason: str | None = None
        self._cut_call = ""

    def close(self) -> Sequence[ResponseEvent]:
        """End the stream. Raises `ModelError` if its last event never came."""
        if not self.ended:
            raise self._counting(self._closed_early("message_stop"))
        return ()

    def partial(self) -> ResponseItem | None:
        """Return the text of an incomplete message, marked `incomplete`."""
        text = encodable(self._words.text) if self._words is not None else ""
        return made_message(None, text, "incomplete") if text.strip() else None

    def _take(self, payload: bytes) -> None:
        event = load(payload, events.decoder)
        if isinstance(event, Unread):
            self._pass_over(payload, event)
        elif isinstance(event, dict):
            self._plain(event)
        else:
            _HANDLERS[type(event)](self, event)

    def _is_of_a_call(self, payload: bytes) -> bool:
        return b"content_block" in payload

    def _plain(self, event: dict[str, Any]) -> None:
        """Handle an event that does not fit: a known one with odd fields, an error, or nothing to us."""
        kind = event.get("type")
        if isinstance(kind, str) and kind in events.KINDS:
            read = fitting(event, events.KINDS[kind])
            _HANDLERS[type(read)](self, read)
        elif (not isinstance(kind, str) or not kind or kind == "error") and (error := read_error(event)) is not None:
            raised = as_model_error(error, self._server)
            raised.usage = self._counted()
            raise raised

    # The message

    def _start(self, event: events.MessageStart) -> None:
        message = event.message
        self._count(message.usage)
        self._message_id = message.id or self._calls.new_id()
        self._events.append(Created(message.id or "", message.model if isinstance(message.model, str) else ""))

    def _whole(self, event: events.Whole) -> None:
        """Take a message in one piece as the stream that would have led to it."""
        self._start(events.MessageStart(event))
        for index, raw in enumerate(event.content or ()):
            self._open(events.BlockStart(index, raw))
            self._stop(events.BlockStop(index))
        self._end(events.MessageDelta(events.Stop(event.stop_reason, event.stop_details)))
        self._finish(events.MessageStop())

    def _end(self, event: events.MessageDelta) -> None:
        """Take why the message ends; what was held back is known to be whole, or cut off, from here on."""
        self._count(event.usage)
        self._reason = event.delta.stop_reason or self._reason
        if self._reason == "refusal":
            raise self._refused(event.delta.stop_details or {})
        if self._reason == CONTEXT:
            raise self._counting(ContextOverflow(f"{DOES_NOT_FIT}: {self._server} stopped the answer where it ends."))
        for index, block in enumerate(self._blocks):
            if not block.closed:
                self._stop(events.BlockStop(index))
        self._close_words()
        self._release()

    def _release(self) -> None:
        """Give out the calls that were held back, unless the answer reached its limit within them."""
        held, self._held = self._held, []
        for block in held:
            if self._is_cut:
                self._cut_call = block.call.name if block.call is not None else ""
            else:
                self._give_call(block)

    def _finish(self, event: events.MessageStop) -> None:
        if self._reason is None:
            raise self._broken("ended a message without a reason")
        if self._reason == CALLS and not any(block.kind.endswith("tool_use") for block in self._blocks):
            raise self._broken("ended a message for a call that it did not send")
        if self._reason == PAUSE:
            self._keep(self._new_place(), f"pause_{self._message_id}", {"type": msgspec.Raw(b'"pause_turn"')})
        self.ended = self.said_all = True
        reason = CUT if self._is_cut else None
        more = False if self._reason == PAUSE else None
        self._events.append(Completed(self._message_id, self._counted(), more, reason, self._cut_call))

    @property
    def _is_cut(self) -> bool:
        return finish_of(self._reason) is Finish.CUT

    def _refused(self, details: dict[str, Any]) -> ModelError:
        said, category = details.get("explanation"), details.get("category")
        about = f" ({category})" if isinstance(category, str) else ""
        why = f": {said}" if isinstance(said, str) and said.strip() else "."
        self._words = None  # what it said before is not to be gone on with
        return self._counting(ContentFiltered(f"The model behind {self._server} refuses to answer{about}{why}"))

    def _broken(self, what: str) -> ModelError:
        return self._counting(ModelError(f"{self._server} {what}: a part of the stream is lost.", retryable=True))

    def _counting(self, error: ModelError) -> ModelError:
        error.usage = self._counted()
        return error

    # Blocks

    def _new_place(self) -> int:
        self._places += 1
        return self._places

    def _open(self, event: events.BlockStart) -> None:
        raw = bytes(event.content_block)
        if not self._message_id or self._reason is not None:
            raise self._broken("began a block outside its message")
        if not raw.startswith(b"{"):
            raise self._broken("began a block that is none")
        if event.index is not None and event.index != len(self._blocks):
            raise self._broken(f"began block {event.index} after {len(self._blocks)} blocks")
        head = events.read_head(raw)
        if head.type == "text":
            self._open_text(head, raw)
            return
        self._close_words()
        place = self._new_place()
        block = _Block(head, raw, f"{_prefix(head.type)}_{self._message_id}_{place}", place)
        self._blocks.append(block)
        if head.type == "tool_use":
            if not head.name:
                raise self._broken("sent a call without a name")
            block.call = self._calls.open(head.id, head.name, None, custom=False)
            block.item_id = f"{_PREFIXES[block.call.kind]}_{self._message_id}_{place}"
            self._events.append(block.call.added(block.item_id))
        elif head.type == "thinking":
            self._events.append(ItemAdded(block.item_id, "reasoning"))
            self._think(block, head.thinking)

    def _open_text(self, head: events.Head, raw: bytes) -> None:
        if self._words is None:
            place = self._new_place()
            self._words = Words(f"msg_{self._message_id}_{place}", place)
        self._words.begin(head.citations or ())
        block = _Block(head, raw, self._words.item_id, self._words.place)
        self._blocks.append(block)
        self._say(head.text)

    def _found(self, index: int | None) -> _Block:
        """Return the block that an event belongs to."""
        place = len(self._blocks) - 1 if index is None else index
        if not 0 <= place < len(self._blocks) or self._blocks[place].closed:
            raise self._broken(f"went on with block {index}, which is not open")
        return self._blocks[place]

    def _delta(self, event: events.BlockDelta) -> None:
        block, delta = self._found(event.index), event.delta
        if block.kind == "text":
            if delta.type == "citations_delta" and self._words is not None:
                self._words.cite(delta.citation)
            self._say(delta.text)
        elif block.kind == "thinking":
            self._think(block, delta.thinking)
            block.signature = delta.signature or block.signature
        elif delta.partial_json:
            block.parts.append(delta.partial_json)
            if block.call is not None and (text := block.call.delta(delta.partial_json)):
                self._events.append(ToolInputDelta(block.item_id, block.call.call_id, encodable(text)))

    def _say(self, text: str | None) -> None:
        words = self._words
        if not text or words is None:
            return
        for added, part, said in words.add(text):
            if added:
                self._events.append(ItemAdded(words.item_id, "message"))
            self._events.append(TextDelta(words.item_id, encodable(said), part))

    def _think(self, block: _Block, text: str | None) -> None:
        if text:
            block.parts.append(text)
            self._events.append(ReasoningDelta(block.item_id, encodable(text)))

    def _stop(self, event: events.BlockStop) -> None:
        block = self._found(event.index)
        block.closed = True
        if block.kind == "tool_use":
            self._close_call(block)
        elif block.kind == "thinking":
            said = encodable("".join(block.parts))
            fields: dict[str, object] = {**block.rest(_THINKING_KEYS), "signature": block.signature}
            more = {"message_fields": fields}
            self._give(made_reasoning(block.item_id, content=said, more=more), block.place)
        elif block.kind == "redacted_thinking":
            hidden = {"message_fields": msgspec.Raw(block.raw)}
            self._give(made_reasoning(block.item_id, more=hidden), block.place)
        elif block.kind != "text":
            whole = events.read_fields(block.raw)
            if block.input:
                whole["input"] = self._own_input(block.input)
            self._keep(block.place, block.item_id, whole)

    def _close_call(self, block: _Block) -> None:
        """Give out a call whose input is whole. One that holds less may have been cut off: that is said later."""
        if is_object(block.input):
            self._give_call(block)
        else:
            self._held.append(block)

    def _give_call(self, block: _Block) -> None:
        call = block.call
        assert call is not None
        rest = block.rest(_CALL_KEYS)
        more = {"message_fields": rest} if rest else {}
        self._give(self._calls.finish(call, block.input, None, block.item_id, more), block.place)

    def _keep(self, place: int, item_id: str, fields: dict[str, msgspec.Raw]) -> None:
        """Give out a block that is no item elsewhere."""
        item = {"type": "message_block", "id": item_id, "message_fields": fields}
        self._give(read_item(msgspec.json.encode(item)), place)

    def _own_input(self, text: str) -> msgspec.Raw:
        """Return the input of a call that the server runs itself."""
        if not is_object(text):
            raise self._broken("sent the input of its own tool in pieces that are no JSON object")
        return msgspec.Raw(text.encode())

    def _close_words(self) -> None:
        words, self._words = self._words, None
        if words is not None and words.is_said:
            self._give(words.message("incomplete" if self._is_cut else "completed"), words.place)

    def _give(self, item: ResponseItem, place: int) -> None:
        self._events.append(ItemDone(item, place))

    # Tokens

    def _count(self, usage: events.Usage | None) -> None:
        """Take counts, which are totals so far; those that are missing stay."""
        for name in events.Usage.__struct_fields__ if usage is not None else ():
            if (value := getattr(usage, name)) is not None:
                setattr(self._usage, name, value)

    def _counted(self) -> TokenUsage | None:
        usage = self._usage
        if usage.input_tokens is None and usage.output_tokens is None:
            return None
        read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        thought = (usage.output_tokens_details or {}).get("thinking_tokens")
        return TokenUsage(
            (usage.input_tokens or 0) + read + written,
            read,
            usage.output_tokens or 0,
            thought if isinstance(thought, int) else 0,
            written,
        )

    def _pinged(self, event: events.Ping) -> None:
        """Take a sign of life."""


_THINKING_KEYS = frozenset({"type", "thinking", "signature"})

_HANDLERS: dict[type, Any] = {
    events.MessageStart: MessagesStream._start,
    events.BlockStart: MessagesStream._open,
    events.BlockDelta: MessagesStream._delta,
    events.BlockStop: MessagesStream._stop,
    events.MessageDelta: MessagesStream._end,
    events.MessageStop: MessagesStream._finish,
    events.Whole: MessagesStream._whole,
    events.Ping: MessagesStream._pinged,
}


def _prefix(kind: str) -> str:
    return "rs" if kind in ("thinking", "redacted_thinking") else "mb"
