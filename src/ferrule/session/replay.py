"""Put the lines of a session file together again, in bounded memory: from its newest compaction on, and of a history
that is too large for any model only the newest part."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

import msgspec

from ferrule.history.compaction import compacted, is_opening, summary_message, units
from ferrule.history.images import SMALL
from ferrule.model.lessons import Lesson, latest
from ferrule.model.recipient import ANYWHERE, family_of
from ferrule.protocol.items import Compaction, Message, Origin, Reasoning, ResponseItem, UnknownItem, read_item
from ferrule.session.images import bounded
from ferrule.session.lines import (
    Checkpoint,
    Compacted,
    ImagesRefused,
    ServerLesson,
    SessionMeta,
    TurnContext,
)
from ferrule.session.salvage import BLOCK, LONGEST_LINE, Line, Salvage, encoding_of, read_line

MOST_HISTORY = 64 * 1024 * 1024
"""Bytes of the items that a session goes on with: several times what the largest windows and requests hold."""
ITEM_BYTES = 1024
"""What an item takes in memory beside its text."""
_MARK = b'","type":"compacted"'
_HEAD_BYTES = 160
"""Bytes at the beginning of a line that hold its time and type."""

Response = tuple[ResponseItem, ...]


_Entry = Line | TurnContext | None
"""A line with an item, the context of those that follow, or the end of a response."""


class Replay:
    """What a session file says. `responses` are its items, cut where a response of the model ended, or where somebody
    else spoke after it. `damaged` lines could not be read in full; `left_out` items are older than the history that
    there is room for."""

    def __init__(self) -> None:
        self.meta: SessionMeta | None = None
        self.context: TurnContext | None = None
        self.lessons: tuple[Lesson, ...] = ()
        self.refused: tuple[ImagesRefused, ...] = ()
        self.responses: tuple[Response, ...] = ()
        self.damaged = 0
        self.left_out = 0
        self._base: list[Response] = []
        """What stands before the lines: the history of a compaction, or the opening of one that is too large."""
        self._entries: list[_Entry] = []
        self._weight = 0
        self._first_context: TurnContext | None = None

    def read(self, file: BinaryIO) -> None:
        """Read a file from its newest compaction on; all of it where there is none."""
        file.seek(self._to_newest_compaction(file))
        lines = Salvage(file)
        for line in lines:
            try:
                self._take(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.damaged += 1
        self.responses = self._assembled()
        self.damaged += lines.damaged

    def _to_newest_compaction(self, file: BinaryIO) -> int:
        """Take the head and the newest compaction that can be read whole and says what stands before it. Return where
        to read on."""
        head = None if encoding_of(file.read(3)) else _line_at(file, 0)
        if head is None or head.type != "session_meta":
            return 0
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            self._take(head)
        for at in compactions(file) if self.meta else ():
            line = _line_at(file, at)
            end = file.tell()
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                if (
                    line is not None
                    and line.type == "compacted"
                    and _says_all(by := msgspec.json.decode(line.payload, type=Compacted))
                ):
                    self._replace(by)
                    return end
        return 0

    def _take(self, line: Line) -> None:
        """Take one line. Raises `msgspec.DecodeError` for one that is not what it says it is."""
        match line.type:
            case "session_meta":
                self.meta = self.meta or msgspec.json.decode(line.payload, type=SessionMeta)
            case "turn_context":
                self.context = msgspec.json.decode(line.payload, type=TurnContext)
                if self._entries and isinstance(self._entries[-1], TurnContext):
                    self._entries.pop()
                self._entries.append(self.context)
            case "response_item":
                self._entries.append(line)
                self._weight += _weight(line)
                if self._weight > MOST_HISTORY:
                    self._shed()
            case "compacted":
                self._replace(msgspec.json.decode(line.payload, type=Compacted))
            case "event_msg":
                self._event(line.payload)

    def _event(self, payload: msgspec.Raw) -> None:
        match _event_type(payload).type:
            case "token_count":
                if self._entries and self._entries[-1] is not None:
                    self._entries.append(None)
            case "server_lesson":
                lesson = msgspec.json.decode(payload, type=ServerLesson).lesson
                self.lessons = latest((*self.lessons, lesson))
            case "images_refused":
                refused = msgspec.json.decode(payload, type=ImagesRefused)
                self.refused = (*(one for one in self.refused if one != refused), refused)

    def _replace(self, by: Compacted) -> None:
        """Go on with the history of a compaction."""
        if by.replacement_history is None:
            said = [item for response in self._assembled() for item in response]
            opening = [item for item in said if is_opening(item)]
            items: Sequence[ResponseItem] = compacted(said, opening=opening, summary=[summary_message(by.message)])
        else:
            items = by.history()
        checkpoint = _checkpoint(by.checkpoint)
        if checkpoint is not None:
            self.context = checkpoint.context or self.context
            self.lessons, self.refused = checkpoint.lessons, checkpoint.refused
        self._base, self._entries = [tuple(unit) for unit in units(items)], []
        self._first_context = self.context
        self._weight = self.left_out = 0

    def _shed(self) -> None:
        """Make room: leave out the images that no request would hold, then the oldest items."""
        while not self._base and self._entries and (item := _opening_in(self._entries[0])) is not None:
            self._base.append((item,))
            del self._entries[0]
        entries = _without_old_images(self._entries)
        self._weight = sum(map(_weight, entries))
        for at, entry in enumerate(entries):
            if self._weight <= MOST_HISTORY // 2 or at == len(entries) - 1:
                self._entries = entries[at:]
                return
            self._weight -= _weight(entry)
            self.left_out += isinstance(entry, Line)
            self._first_context = entry if isinstance(entry, TurnContext) else self._first_context

    def _assembled(self) -> tuple[Response, ...]:
        """Return the responses, and keep none of the lines."""
        made = _Responses()
        context = self._first_context
        self._entries.reverse()
        while self._entries:
            entry = self._entries.pop()
            if isinstance(entry, TurnContext):
                context = entry
            elif entry is None:
                made.cut()
            else:
                item = _item(entry)
                self.damaged += item is None
                if item is not None or (item := _mended(entry)) is not None:
                    made.add(self._with_origin(item, context))
        responses = (*made.ended, tuple(made.items))
        return (*self._base, *(self._whole(responses) if self.left_out else responses))

    def _whole(self, responses: Sequence[Response]) -> list[Response]:
        """Leave out what is left of a response whose beginning was left out."""
        *parts, rest = [tuple(unit) for response in responses for unit in units(response)] or [()]
        first, *parts = (*parts, rest)
        self.left_out += len(first)
        return parts

    def _with_origin(self, item: ResponseItem, context: TurnContext | None) -> ResponseItem:
        """Guess the origin of an item that needs one and lacks it from the head and the last turn."""
        if item.origin is not None or not isinstance(item.view, Reasoning | Compaction):
            return item
        if self.meta is None or not self.meta.model_provider or context is None:
            return item
        origin = Origin(f"{self.meta.model_provider}{ANYWHERE}", family_of(context.model))
        return msgspec.structs.replace(item, origin=origin)


def said(lines: Iterable[Line]) -> Iterator[ResponseItem]:
    """Yield all items, also those that a compaction has replaced; of a conversation that was brought from elsewhere,
    what it was when it came. Lines that cannot be read say nothing."""
    begun = False
    for line in lines:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            if line.type == "response_item":
                begun = True
                yield read_item(bytes(line.payload))
            elif line.type == "compacted" and not begun:
                yield from msgspec.json.decode(line.payload, type=Compacted).history()


class _Responses:
    """Divides items by response."""

    def __init__(self) -> None:
        self.ended: list[Response] = []
        self.items: list[ResponseItem] = []
        self._speaker: Origin | None = None

    def add(self, item: ResponseItem) -> None:
        """End a response where somebody else speaks or, if its last line is lost, where another one begins."""
        last, new = self._speaker, item.origin
        another = last is not None and new is not None and 0 != last.response != new.response != 0
        if another or (isinstance(item.view, Message) and item.view.role != "assistant"):
            self.cut()
        self.items.append(item)
        self._speaker = item.origin or self._speaker

    def cut(self) -> None:
        """End a response."""
        self.ended.append(tuple(self.items))
        self.items, self._speaker = [], None


def _without_old_images(entries: Sequence[_Entry]) -> list[_Entry]:
    """Leave out the images that a request would leave out."""
    changed = list(entries)
    found = {at: item for at, entry in enumerate(entries) if (item := _item_with_image(entry)) is not None}
    for (at, item), kept in zip(found.items(), bounded(tuple(found.values())), strict=True):
        if kept is not item:
            changed[at] = Line("response_item", msgspec.Raw(kept.raw))
    return changed


def _item_with_image(entry: _Entry) -> ResponseItem | None:
    if not isinstance(entry, Line) or len(entry.payload) < SMALL or b'"input_image"' not in bytes(entry.payload):
        return None
    return _item(entry)


def _opening_in(entry: _Entry) -> ResponseItem | None:
    item = _item(entry) if isinstance(entry, Line) else None
    return item if item is not None and is_opening(item) else None


def _item(line: Line) -> ResponseItem | None:
    """Read an item; None for what no server would take as one."""
    try:
        item = read_item(bytes(line.payload), _origin(line.origin))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if isinstance(item.view, UnknownItem) and not item.view.original_type else item


def _mended(line: Line) -> ResponseItem | None:
    """Read an item with bytes that are no text: they are replaced."""
    text = bytes(line.payload).decode(errors="replace").encode()
    return None if text == line.payload else _item(Line("response_item", msgspec.Raw(text), line.origin))


def _weight(entry: _Entry) -> int:
    return len(entry.payload) + ITEM_BYTES if isinstance(entry, Line) else 0


def compactions(file: BinaryIO) -> Iterator[int]:
    """Yield where the lines of compactions begin, the newest first."""
    end = file.seek(0, 2)
    while end > 1:
        start = max(1, end - BLOCK)
        file.seek(start - 1)  # with the end of the line before, and the head of a line that begins at the end
        block = file.read(end - start + 1 + _HEAD_BYTES)
        at = len(block)
        while (at := block.rfind(_MARK, 0, at)) != -1:
            begins = block.rfind(b"\n", max(0, at - _HEAD_BYTES), at) + 1
            if 0 < begins <= end - start and block.startswith(b'{"timestamp":"', begins):
                yield start - 1 + begins
        end = start


def _line_at(file: BinaryIO, at: int) -> Line | None:
    file.seek(at)
    return read_line(file.readline(LONGEST_LINE).strip())


def _says_all(by: Compacted) -> bool:
    """Return whether a compaction says all that stands before it."""
    return by.replacement_history is not None and _checkpoint(by.checkpoint) is not None


def _checkpoint(raw: msgspec.Raw) -> Checkpoint | None:
    """Read a checkpoint; None if there is none, or one of another version."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(raw, type=Checkpoint) if len(raw) else None
    return None


_decode_origin = msgspec.json.Decoder(Origin).decode


def _origin(raw: msgspec.Raw) -> Origin | None:
    """Read the origin of an item; None if there is none, or none in our form."""
    with suppress(msgspec.DecodeError):
        return _decode_origin(raw) if len(raw) else None
    return None


class _EventType(msgspec.Struct):
    type: str = ""


_event_type = msgspec.json.Decoder(_EventType).decode
