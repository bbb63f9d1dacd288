"""Around the merger of the Chat wire: what it takes for the text of a message becomes text and calls."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ferrule.model.calls import CallReader, made_message
from ferrule.model.chat.stream import ChatStream
from ferrule.model.stream import (
    CallUnreadable,
    Completed,
    ItemAdded,
    ItemDone,
    ModelError,
    ResponseEvent,
    TextDelta,
    ToolInputDelta,
)
from ferrule.model.text.prompt import FORM
from ferrule.model.text.reader import CallFinder, Unread
from ferrule.model.text.tools import KnownTools, Said
from ferrule.protocol.items import Message, ResponseItem, read_item
from ferrule.protocol.json_text import encodable

_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "tool_search_call": "tsc"}


class TextStream:
    """A merger of one response's payloads. Calls come at its end: whether they are calls depends on what follows."""

    def __init__(self, chat: ChatStream, calls: CallReader, tools: KnownTools) -> None:
        self._chat = chat
        self._calls = calls
        self._tools = tools
        self._finder = CallFinder(tools)
        self._added: ItemAdded | None = None
        self._item_id = ""
        self._text: list[str] = []
        self._found: list[Said] = []
        self._unread: list[Unread] = []
        self._called = False
        self._place = 0

    @property
    def ended(self) -> bool:
        """Nothing more is expected."""
        return self._chat.ended

    @property
    def said_all(self) -> bool:
        """The answer is whole even if the stream breaks now."""
        return self._chat.said_all and not self._is_unreadable

    @property
    def error(self) -> ModelError | None:
        """The server's error; it counts after the events of the same `feed`."""
        return self._chat.error

    @property
    def _is_unreadable(self) -> bool:
        return bool(self._unread) and not self._found and not self._called

    def feed(self, payloads: Iterable[bytes]) -> Sequence[ResponseEvent]:
        """Return the events of these payloads."""
        return self._read(self._chat.feed(payloads))

    def close(self) -> Sequence[ResponseEvent]:
        """Return the events at the end of the stream. Raises `ModelError` if it came too early, `CallUnreadable` if the
        answer's only call is none."""
        return self._read(self._chat.close())

    def partial(self) -> ResponseItem | None:
        """Return the text of an incomplete message."""
        text = "".join(self._text)
        return made_message(self._item_id, text, "incomplete") if text.strip() else None

    def _read(self, events: Sequence[ResponseEvent]) -> Sequence[ResponseEvent]:
        out: list[ResponseEvent] = []
        for event in events:
            match event:
                case ItemAdded(kind="message"):
                    self._added, self._item_id, self._text = event, event.item_id, []
                    self._finder = CallFinder(self._tools)
                case TextDelta():
                    self._show(self._finder.feed(event.delta), out)
                case ItemDone(item=ResponseItem(view=Message() as message)):
                    self._message_done(event, message, out)
                case Completed():
                    out += [*self._call_events(), event]
                case _:
                    self._called = self._called or (isinstance(event, ItemAdded) and event.kind != "reasoning")
                    out.append(event)
        return out

    def _show(self, text: str, out: list[ResponseEvent]) -> None:
        if not text:
            return
        if self._added is not None and text.strip():
            out.append(self._added)
            self._added = None
        self._text.append(text)
        if self._added is None:
            out.append(TextDelta(self._item_id, encodable(text)))

    def _message_done(self, event: ItemDone, message: Message, out: list[ResponseEvent]) -> None:
        ending = self._finder.finish(cut=message.status == "incomplete")
        self._show(ending.text, out)
        self._found += ending.calls
        self._unread += ending.unread
        self._place = max(self._place, event.place)
        if self._is_unreadable:
            return
        if ending.unread:
            self._show("\n" + "\n".join(unread.text for unread in ending.unread), out)
        text = "".join(self._text)
        if ending.calls:
            text = text.rstrip()
        if ending.late_thought and not text.lstrip().startswith("<think>"):
            text = "<think>" + text
        if text.strip():
            out.append(msgspec.structs.replace(event, item=_with_text(event.item, text)))
        self._text = []

    def _call_events(self) -> Iterable[ResponseEvent]:
        if self._is_unreadable:
            raise self._unreadable()
        for said in self._found:
            self._place += 1
            opened = self._calls.open(None, said.name, None, custom=False)
            item_id = f"{_PREFIXES[opened.kind]}_{self._calls.new_id()}"
            yield opened.added(item_id)
            if text := opened.delta(said.arguments):
                yield ToolInputDelta(item_id, opened.call_id, encodable(text))
            yield ItemDone(self._calls.finish(opened, said.arguments, None, item_id), self._place)
        self._found = []

    def _unreadable(self) -> CallUnreadable:
        unread = self._unread[0]
        error = CallUnreadable("The model wrote a call that cannot be read.", generation=unread.text.strip())
        error.said = f"{unread.why}. Write a call in this form:\n{FORM}"
        return error


def _with_text(item: ResponseItem, text: str) -> ResponseItem:
    """Return a message with another text; the same one if nothing changes."""
    fields: dict[str, Any] = msgspec.json.decode(item.raw)
    part = fields["content"][0]
    key = "refusal" if part.get("type") == "refusal" else "text"
    if part[key] == text:
        return item
    part[key] = encodable(text)
    return read_item(msgspec.json.encode(fields), item.origin)
