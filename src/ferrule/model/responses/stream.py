"""Merge the event stream of the Responses API into items.

An item's content is taken from the most reliable source: its `output_item.done`, else its `arguments.done`, else its
deltas, else the final response. Bridges leave any of these out, and some give an item another id in each event.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from ferrule.model.calls import CallReader, OpenCall, made_message, made_reasoning, without_placeholder
from ferrule.model.meanings import Finish, finish_of
from ferrule.model.merger import StreamMerger
from ferrule.model.payloads import Unread, fitting
from ferrule.model.refusals import as_model_error, read_error
from ferrule.model.responses import events
from ferrule.model.responses.numbers import Numbers
from ferrule.model.stream import (
    Completed,
    Created,
    ItemAdded,
    ItemDone,
    ModelError,
    Progress,
    ReasoningDelta,
    ResponseEvent,
    TextDelta,
    ToolInputDelta,
)
from ferrule.protocol.content import is_empty, text_of
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import Message, ResponseItem, read_item
from ferrule.protocol.json_text import encodable

_CALLS = {"function_call", "custom_tool_call"}
_READ = _CALLS | {"message", "reasoning"}
"""Items whose events are read piece by piece."""
Status = Literal["completed", "incomplete"]


class _Head(msgspec.Struct):
    """The part of an item that is read before it is complete."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


_head_decoder = msgspec.json.Decoder(_Head)


class _Open:
    """An item of the stream. `parts` are its deltas, `body` is from its `arguments.done`."""

    __slots__ = ("body", "call", "done", "index", "item_id", "kind", "parts", "place", "text")

    def __init__(self, kind: str, item_id: str, index: int | None, place: int) -> None:
        self.kind = kind
        self.place = place
        self.item_id = item_id
        self.index = index
        self.call: OpenCall | None = None
        self.parts: list[str] = []
        self.body: str | None = None
        self.text = ""
        self.done = False

    @property
    def streamed(self) -> str:
        """The best content before the item itself."""
        return self.body or "".join(self.parts)

    def may_be(self, head: "_Head") -> bool:
        """Return whether a whole call can be this one: it is still open, or repeats it."""
        said = _string(head.input if self.kind == "custom_tool_call" else head.arguments)
        return not self.done or said == self.streamed


class ResponsesStream(StreamMerger):
    """A merger of one response's payloads. `ended` once its last event came."""

    def __init__(self, calls: CallReader, server: str) -> None:
        super().__init__(server)
        self._calls = calls
        self._items: list[_Open] = []
        self._by_id: dict[str, _Open] = {}
        self._by_index: dict[int, _Open] = {}
        self._numbers = Numbers()

    def _take(self, payload: bytes) -> None:
        event = events.read_event(payload)
        if isinstance(event, Unread):
            self._pass_over(payload, event)
        elif isinstance(event, dict):
            self._plain(event, payload)
        elif self._numbers.is_new(event.sequence_number, payload) and not self._is_past(event):
            if isinstance(event, events.Other):
                self._progress(event, payload)
            else:
                _HANDLERS[type(event)](self, event)

    def _is_past(self, event: events.Numbered) -> bool:
        """Return whether an out-of-order event comes after the end of its item."""
        if not self._numbers.is_late(event.sequence_number) or not isinstance(event, events.Located):
            return False
        item = self._find(event)
        return item is not None and item.done

    def close(self) -> Sequence[ResponseEvent]:
        """End the stream. Raises `ModelError` if its last event never came."""
        if not self.ended:
            raise self._closed_early("response.completed")
        return ()

    def partial(self) -> ResponseItem | None:
        """Return the text of an incomplete message, marked `incomplete`."""
        words = "".join("".join(item.parts) for item in self._items if item.kind == "message" and not item.done)
        return made_message(None, encodable(words), "incomplete") if words.strip() else None

    def _plain(self, event: dict[str, Any], payload: bytes) -> None:
        """Handle an event that does not fit: a known one with odd fields, a whole response, an error in some spelling,
        or nothing to us."""
        kind, number = event.get("type"), event.get("sequence_number")
        if not self._numbers.is_new(number if isinstance(number, int) else None, payload):
            return
        if event.get("object") == "response" and "output" in event:
            self._end_as_said(events.Completed(response=fitting(event, events.Response)))
        elif isinstance(kind, str) and kind in events.KINDS:
            read = fitting(event, events.KINDS[kind])
            _HANDLERS[type(read)](self, read)
        elif (not isinstance(kind, str) or not kind or events.is_error(kind)) and (error := read_error(event)):
            raise as_model_error(error, self._server)

    def _create(self, event: events.Created) -> None:
        model = event.response.model
        self._events.append(Created(event.response.id or "", model if isinstance(model, str) else ""))

    # Finding and opening items

    def _find(self, event: events.Located) -> _Open | None:
        item = self._by_id.get(event.item_id or "")
        if item is None and event.output_index is not None:
            item = self._by_index.get(event.output_index)
        return item

    def _found(self, event: events.Located, kind: str, name: str | None = None, call_id: str | None = None) -> _Open:
        """Find an event's open item; create one if the server never opened it."""
        item = self._find(event)
        if item is None or item.done or (item.kind != kind and not {item.kind, kind} <= _CALLS):
            item = self._open(_Head(kind, event.item_id, call_id, name), event)
        if item.call is None and name is not None and kind in _CALLS:
            self._open_call(item, _Head(kind, event.item_id, call_id, name))
        return item

    def _open(self, head: _Head, event: events.Located, begun: bytes = b"") -> _Open:
        item_id = head.id or event.item_id or f"item_{self._calls.new_id()}"
        item = _Open(head.type, item_id, event.output_index, len(self._items))
        self._items.append(item)
        for name in {item_id, event.item_id} - {None, ""}:
            self._by_id[str(name)] = item
        if event.output_index is not None:
            self._by_index[event.output_index] = item
        if head.type in _CALLS and head.name is not None:
            self._open_call(item, head)
        elif head.type not in _CALLS:
            self._events.append(ItemAdded(item_id, head.type, head.call_id, begun=begun))
        return item

    def _open_call(self, item: _Open, head: _Head) -> None:
        custom = head.type == "custom_tool_call"
        call_id = head.call_id or (item.item_id if head.id else None)
        item.call = call = self._calls.open(call_id, head.name or "", head.namespace, custom=custom)
        self._events.append(call.added(item.item_id))
        for part in item.parts:
            self._events.append(ToolInputDelta(item.item_id, call.call_id, encodable(call.delta(part))))

    def _add(self, event: events.ItemAdded) -> None:
        head = _read_head(event.item)
        known = self._find(event)
        if known is None or known.done or known.kind != head.type:
            self._open(head, event, b"" if head.type in _READ else bytes(event.item))
        elif known.call is None and head.type in _CALLS:
            self._open_call(known, head)

    # Deltas

    def _text(self, event: events.TextDelta | events.RefusalDelta) -> None:
        if event.delta:
            item = self._found(event, "message")
            item.parts.append(event.delta)
            refusal = isinstance(event, events.RefusalDelta)
            item.text = "refusal" if refusal else "content"
            logprobs = b"" if isinstance(event, events.RefusalDelta) else _some(event.logprobs)
            text = encodable(event.delta)
            self._events.append(TextDelta(item.item_id, text, event.content_index or 0, refusal, logprobs))

    def _text_done(self, event: events.TextDone) -> None:
        """Take the text of a message that came without deltas."""
        known = self._find(event)
        if event.text and (known is None or not (known.done or known.parts)):
            self._text(
                events.TextDelta(
                    item_id=event.item_id,
                    output_index=event.output_index,
                    content_index=event.content_index,
                    delta=event.text,
                )
            )

    def _reasoning(self, event: events.SummaryDelta | events.ReasoningDelta) -> None:
        if event.delta:
            item = self._found(event, "reasoning")
            item.parts.append(event.delta)
            summary = isinstance(event, events.SummaryDelta)
            item.text = "summary" if summary else "content"
            part = event.summary_index if isinstance(event, events.SummaryDelta) else event.content_index
            self._events.append(ReasoningDelta(item.item_id, encodable(event.delta), part or 0, summary))

    def _input(self, event: events.ArgumentsDelta | events.InputDelta) -> None:
        if not event.delta:
            return
        item = self._found(event, "function_call" if isinstance(event, events.ArgumentsDelta) else "custom_tool_call")
        text = event.delta if isinstance(event.delta, str) else msgspec.json.encode(event.delta).decode()
        item.parts.append(text)
        if item.call is not None and (delta := item.call.delta(text)):
            self._events.append(ToolInputDelta(item.item_id, item.call.call_id, encodable(delta)))

    def _arguments_done(self, event: events.ArgumentsDone) -> None:
        self._found_done(event, "function_call", _string(event.arguments))

    def _input_done(self, event: events.InputDone) -> None:
        self._found_done(event, "custom_tool_call", _string(event.input))

    def _found_done(self, event: events.ArgumentsDone | events.InputDone, kind: str, body: str) -> None:
        known = self._find(event)
        if known is None or not known.done:
            self._found(event, kind, event.name, event.call_id).body = body

    def _progress(self, event: events.Other, payload: bytes) -> None:
        """Pass on what the server tells of an item that it runs itself."""
        item = self._find(event) if event.item_id is not None else None
        if item is not None and item.kind not in _READ and not item.done:
            self._events.append(Progress(item.item_id, event.type, payload))

    # Whole items

    def _item_done(self, event: events.ItemDone) -> None:
        head = _read_head(event.item)
        item = self._match(head, event)
        if item is None:
            item = self._open(head, event)
        if not item.done:
            self._finish(item, bytes(event.item), head)

    def _match(self, head: _Head, event: events.Located) -> _Open | None:
        """Find the streamed item that matches a whole item: same id, call, or place. None: it is new."""
        alike = [item for item in self._items if item.kind == head.type]
        for item in alike:
            if head.id and head.id == item.item_id:
                return item
        for item in alike:
            same_place = event.output_index is not None and event.output_index == item.index
            somewhere = event.output_index is None or item.index is None
            if head.call_id and item.call is not None and item.call.said_id:
                if item.call.said_id == head.call_id and (same_place or (somewhere and item.may_be(head))):
                    return item
            elif same_place or (somewhere and not item.done):
                return item
        return None

    def _finish(
        self, item: _Open, raw: bytes | None, head: _Head | None = None, *, status: Status = "completed"
    ) -> None:
        """Emit the item. `raw` is the server's whole item, if it sent one; else a message has this status."""
        given = read_item(raw) if raw else None
        whole: ResponseItem | None
        if item.kind in _CALLS:
            whole = self._whole_call(item, given, head or _Head())
        elif given is not None and not _is_empty(given, item.kind):
            whole = given
        else:
            whole = _from_deltas(item, status) or given
        item.done = True
        if whole is not None:
            self._events.append(ItemDone(whole, item.place))

    def _whole_call(self, item: _Open, given: ResponseItem | None, head: _Head) -> ResponseItem:
        if item.call is None:
            if head.name is None:
                raise ModelError(f"{self._server} sent a call without a name.", retryable=True)
            self._open_call(item, head)
        assert item.call is not None
        said = _string(head.input if item.call.custom else head.arguments)
        body = without_placeholder(said if said.strip() else item.streamed)
        item.body = body
        return self._calls.finish(item.call, body, given, item.item_id)

    # The end

    def _end_as_said(self, event: events.Lifecycle) -> None:
        """End as the response's status says, whatever its event is called."""
        ends = {"failed": self._fail, "cancelled": self._fail, "incomplete": self._cut_short}
        ends.get(event.response.status or "", self._complete)(event)

    def _done(self) -> None:
        """End at `[DONE]` if every item is whole, for bridges that send no `response.completed`."""
        if not self.ended and self._items and all(item.done for item in self._items):
            self._complete(events.Completed())

    def _complete(self, event: events.Lifecycle) -> None:
        self._take_output(event.response.output or [])
        self._check_whole()
        self._close()
        self._end(event.response, None)

    def _cut_short(self, event: events.Lifecycle) -> None:
        reason = str((event.response.incomplete_details or {}).get("reason") or "incomplete")
        if finish_of(reason) is Finish.FILTERED:
            error = self._filtered()
            error.usage = _usage_in(event.response)
            raise error
        self._take_output(event.response.output or [])
        for item in self._items:
            if not item.done and item.kind == "custom_tool_call":
                item.done = True  # half a patch or script must not run
        self._close("incomplete")
        self._end(event.response, reason)

    def _fail(self, event: events.Lifecycle) -> None:
        said = event.response.error or {"message": f"the response was {event.response.status or 'not completed'}"}
        error = read_error({"error": said})
        assert error is not None
        failed = as_model_error(error, self._server)
        failed.usage = _usage_in(event.response)
        raise failed

    def _take_output(self, output: Sequence[msgspec.Raw]) -> None:
        """Take items of the final response that the stream left out or left open. Each streamed item is matched
        once."""
        free = list(self._items)
        for index, raw in enumerate(output):
            head = _read_head(raw)
            item = _same(head, index, bytes(raw), free)
            if item is None:
                self._finish(self._open(head, events.Located(output_index=index)), bytes(raw), head)
                continue
            free.remove(item)
            if not item.done:
                self._finish_with(item, bytes(raw), head)

    def _finish_with(self, item: _Open, raw: bytes, head: _Head) -> None:
        """Complete an item: a call's deltas are more reliable than the final response; for everything else the
        server's own item is more complete."""
        lost = self._numbers.has_gap and item.body is None
        if item.kind in _CALLS and not lost and (streamed := item.streamed):
            text = msgspec.Raw(msgspec.json.encode(encodable(streamed)))
            head = msgspec.structs.replace(head, arguments=text, input=text)
        self._finish(item, raw, head)

    def _check_whole(self) -> None:
        """Raise if the numbers show that the stream has lost part of an open call."""
        if self._numbers.has_gap and any(not item.done and item.body is None for item in self._items):
            raise ModelError(f"{self._server} lost a part of the stream.", retryable=True)

    def _close(self, status: Status = "completed") -> None:
        for item in self._items:
            if not item.done:
                self._finish(item, None, status=status)

    def _end(self, response: events.Response, incomplete: str | None) -> None:
        self.ended = self.said_all = True
        self._events.append(Completed(response.id or "", _usage_in(response), response.end_turn, incomplete))


_HANDLERS: dict[type, Any] = {
    events.TextDelta: ResponsesStream._text,
    events.RefusalDelta: ResponsesStream._text,
    events.SummaryDelta: ResponsesStream._reasoning,
    events.ReasoningDelta: ResponsesStream._reasoning,
    events.ArgumentsDelta: ResponsesStream._input,
    events.InputDelta: ResponsesStream._input,
    events.ArgumentsDone: ResponsesStream._arguments_done,
    events.InputDone: ResponsesStream._input_done,
    events.ItemAdded: ResponsesStream._add,
    events.ItemDone: ResponsesStream._item_done,
    events.Created: ResponsesStream._create,
    events.TextDone: ResponsesStream._text_done,
    events.Completed: ResponsesStream._end_as_said,
    events.Done: ResponsesStream._end_as_said,
    events.Incomplete: ResponsesStream._cut_short,
    events.Failed: ResponsesStream._fail,
    events.Cancelled: ResponsesStream._fail,
}


def _same(head: _Head, index: int, raw: bytes, free: Sequence[_Open]) -> _Open | None:
    """Find the streamed item that an item of the final response repeats; some servers renumber and rename items
    there."""
    alike = [item for item in free if item.kind == head.type]
    words = _words(read_item(raw)) if head.type == "message" else None
    ways: tuple[Callable[[_Open], bool], ...] = (
        lambda item: bool(head.id) and head.id == item.item_id,
        lambda item: item.call is not None and bool(head.call_id) and item.call.said_id == head.call_id,
        lambda item: item.call is None and item.index == index,
        lambda item: words is not None and words == item.streamed,
    )
    return next((item for fits in ways for item in alike if fits(item)), None)


def _words(item: ResponseItem) -> str:
    return text_of(item.view.content) if isinstance(item.view, Message) else ""


def _read_head(raw: msgspec.Raw) -> _Head:
    try:
        return _head_decoder.decode(raw)
    except msgspec.DecodeError:
        return _Head()


def _some(raw: msgspec.Raw) -> bytes:
    """Return the JSON of a list that is there and holds something."""
    text = bytes(raw)
    return text if text.startswith(b"[{") else b""


def _string(raw: msgspec.Raw) -> str:
    """Return a JSON string's text; for any other value its JSON; nothing for null."""
    text = bytes(raw)
    if not text or text == b"null":
        return ""
    return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()


def _from_deltas(item: _Open, status: Status) -> ResponseItem | None:
    words = encodable("".join(item.parts))
    if not words.strip():
        return None
    if item.kind == "message":
        return made_message(item.item_id, words, status, refusal=item.text == "refusal")
    if item.kind == "reasoning":
        if item.text == "summary":
            return made_reasoning(item.item_id, summary=words)
        return made_reasoning(item.item_id, content=words)
    return None


def _is_empty(item: ResponseItem, kind: str) -> bool:
    """Return whether a message has no content, as some bridges close one that they streamed."""
    return is_empty(item.view.content) if isinstance(item.view, Message) else kind == "message"


def _usage_in(response: events.Response) -> TokenUsage | None:
    return None if response.usage is None else token_usage(response.usage)


def token_usage(usage: events.Usage) -> TokenUsage:
    """Return the tokens as counted by a server of this API."""
    details = usage.input_tokens_details or {}
    cached, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    reasoning = (usage.output_tokens_details or {}).get("reasoning_tokens") or 0
    return TokenUsage(usage.input_tokens or 0, int(cached), usage.output_tokens or 0, int(reasoning), int(written))
