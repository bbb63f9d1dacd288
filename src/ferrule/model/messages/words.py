"""The text blocks of an answer that follow each other, as the parts of one message."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ferrule.protocol.items import ResponseItem, read_item
from ferrule.protocol.json_text import encodable


class Words:
    """A message that is arriving. Blank text is held back until something is said."""

    __slots__ = ("_blocks", "_cited", "_told", "item_id", "place")

    def __init__(self, item_id: str, place: int) -> None:
        self.item_id = item_id
        self.place = place
        self._blocks: list[list[str]] = []
        self._cited: list[list[msgspec.Raw]] = []
        self._told = False

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(text for block in self._blocks for text in block)

    @property
    def is_said(self) -> bool:
        """Whether there is more than blanks."""
        return self._told

    def begin(self, citations: Iterable[msgspec.Raw]) -> None:
        """Begin the next block."""
        self._blocks.append([])
        self._cited.append(list(citations))

    def cite(self, citation: msgspec.Raw) -> None:
        """Take a citation of the block that is arriving."""
        if bytes(citation).startswith(b"{"):
            self._cited[-1].append(msgspec.Raw(bytes(citation)))

    def add(self, text: str) -> Iterator[tuple[bool, int, str]]:
        """Take text. Yields what there is to tell: whether the message begins with it, the part, and the text."""
        self._blocks[-1].append(text)
        if self._told:
            yield False, len(self._blocks) - 1, text
        elif text.strip():
            self._told = True
            begun = [("".join(block), part) for part, block in enumerate(self._blocks)]
            for number, (said, part) in enumerate((said, part) for said, part in begun if said):
                yield number == 0, part, said

    def message(self, status: str) -> ResponseItem:
        """Return the message. Its citations of pages are annotations; all of them are kept as they came."""
        parts = [_part("".join(block), cited) for block, cited in zip(self._blocks, self._cited, strict=True)]
        item: dict[str, Any] = {"type": "message", "role": "assistant", "status": status, "content": parts}
        item["id"] = self.item_id
        if any(self._cited):
            item["message_fields"] = {"citations": self._cited}
        return read_item(msgspec.json.encode(item))


def _part(text: str, cited: Iterable[msgspec.Raw]) -> dict[str, Any]:
    said = encodable(text)
    notes = [note for note in (_annotation(citation, said) for citation in cited) if note is not None]
    return {"type": "output_text", "text": said, "annotations": notes}


def _annotation(citation: msgspec.Raw, text: str) -> dict[str, object] | None:
    """Return a page's citation, which is about its whole block, in the form that it has elsewhere."""
    fields: Any = msgspec.json.decode(citation)
    if not isinstance(fields, dict) or not isinstance(fields.get("url"), str):
        return None
    place = {"start_index": 0, "end_index": len(text)}
    return {"type": "url_citation", "url": fields["url"], "title": fields.get("title") or "", **place}
