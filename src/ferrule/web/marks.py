"""Citation marks: `【N】` in what tools give the model and in what the model says, where N is the number of a source.

Marks of pages themselves are no marks: their brackets are replaced before the model reads them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ferrule.protocol.json_text import JsonObject

OPEN, CLOSE = "【", "】"
_MARK = re.compile("【([0-9]{1,6})(?:†[^【】\n]{0,64})?】")
"""Models that were trained on such marks add a place in the page: `【3†L5-L7】`."""
_PERHAPS = re.compile("【(?:[0-9]{1,6}(?:†[^【】\n]{0,64})?)?$")
"""The beginning of a mark at the end of a piece."""
_SENTENCE_END = re.compile(r"[.!?…][\"')\]]*\s+|[。！？]|\n+")
_TAIL = " \t\r\n.!?…。！？\"')]:;,"
"""What may stand between a statement and its mark."""
_LEAD = re.compile(r"\s*(?:[-*•]\s+|[0-9]{1,3}[.)]\s+|#+\s+)?")
"""What begins a line and is no part of its statement."""


class Source(msgspec.Struct, frozen=True):
    """A page that can be cited."""

    url: str
    title: str

    def annotation(self, start: int, end: int) -> JsonObject:
        """Return a citation of it as the Responses API has it."""
        return {"type": "url_citation", "start_index": start, "end_index": end, "url": self.url, "title": self.title}


class FileSource(Source, frozen=True):
    """A file that can be cited: `url` is its id, `title` its name."""

    def annotation(self, start: int, end: int) -> JsonObject:
        """Return a citation of it as the Responses API has it: where its mark stood."""
        return {"type": "file_citation", "index": end, "file_id": self.url, "filename": self.title}


class Citation(msgspec.Struct, frozen=True):
    """A statement of the model, `start` to `end` in its text without marks, and the page that supports it."""

    source: Source
    start: int
    end: int

    @property
    def annotation(self) -> JsonObject:
        """The citation as the Responses API has it."""
        return self.source.annotation(self.start, self.end)


class Cited(NamedTuple):
    """A text without its marks, and what they cite."""

    text: str
    citations: tuple[Citation, ...] = ()


class MarkReader:
    """Removes the marks of a text that arrives in pieces. Holds back only what may be the beginning of a mark."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text to show now."""
        if not self._held and OPEN not in piece:
            return piece
        text = self._held + piece
        begun = _PERHAPS.search(text)
        at = len(text) if begun is None else begun.start()
        self._held = text[at:]
        return without_marks(text[:at])

    def rest(self) -> str:
        """Return what was held back, once the text has ended."""
        held, self._held = self._held, ""
        return held


def mark(number: int) -> str:
    """Return the mark of a source."""
    return f"{OPEN}{number}{CLOSE}"


def without_marks(text: str) -> str:
    """Return a text without its marks."""
    return _MARK.sub("", text)


def disarmed(text: str) -> str:
    """Return the text of a page with other brackets instead of those of marks."""
    return text.replace(OPEN, "[").replace(CLOSE, "]")


def cited(text: str, sources: Mapping[int, Source]) -> Cited:
    """Return a text without its marks, and a citation for each mark of a source. Other marks cite nothing."""
    places = dict.fromkeys(_places(text))
    plain = without_marks(text)
    found: list[Citation] = []
    last = start = 0
    for number, end in places:
        if end != last:
            start, last = _statement_start(plain, last, end), end
        if (source := sources.get(number)) is not None:
            found.append(Citation(source, min(start, end), end))
    return Cited(plain, tuple(found))


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Yield the number of each mark and its place in the text without marks."""
    removed = 0
    for found in _MARK.finditer(text):
        yield int(found[1]), found.start() - removed
        removed += found.end() - found.start()


def _statement_start(text: str, after: int, end: int) -> int:
    """Return where the statement begins that ends at `end`: at most as far back as `after`."""
    last = after + len(text[after:end].rstrip(_TAIL))
    start = after
    for boundary in _SENTENCE_END.finditer(text, after, last):
        start = boundary.end()
    lead = _LEAD.match(text, start, end)
    return start if lead is None else lead.end()
