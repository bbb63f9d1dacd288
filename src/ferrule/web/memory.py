"""What a conversation has seen of the web, and what is kept beyond it."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from ferrule.protocol.content import text_of
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, ResponseItem
from ferrule.web.marks import OPEN, FileSource, Source
from ferrule.web.reader import Page
from ferrule.web.search import Hit
from ferrule.web.urls import WebUrl

TOOLS = ("web_search", "open_page", "find_in_page")
"""The names of the model's functions."""
FILE_SEARCH = "file_search"
"""That of the function which finds files, whose marks are counted together with those of pages."""
_OURS = re.compile(rf"(?:{'|'.join((*TOOLS, FILE_SEARCH))})(?:_[0-9]+)?")
_SOURCE = re.compile(r"^【([0-9]{1,6})】 (.*)\n(https?://\S+|file-\w+)$", re.MULTILINE)
"""How a source stands in what the model read. Text of pages is quoted, so no line of it begins so."""
_NUMBER = re.compile("【([0-9]{1,4})(?![0-9])")
"""Larger ones are no sources, and what came after them would soon have more digits than a mark."""
_BRACKETS = (OPEN.encode(), b"\\u3010")

MOST_KEPT = 2_000
"""Pages and hits that are kept for searches without the web, of all owners."""
MOST_CHARACTERS = 32_000_000
"""Of their texts."""
MOST_OPEN = 16_000_000
"""Characters of the pages that one conversation has open: of the largest there is one."""
MOST_WORDS = 32
"""Words of a query that are looked for."""


class Memory:
    """The sources of one conversation, numbered, and the pages that it has opened."""

    def __init__(self) -> None:
        self.sources: dict[int, Source] = {}
        self.pages: dict[str, Page] = {}
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._recalled = False

    def keep(self, page: Page, *names: str) -> None:
        """Keep a page open, also under other addresses that lead to it; of too many the oldest are closed."""
        for name in (page.url.text, *names):
            self.pages.pop(name, None)
            self.pages[name] = page
        while (oldest := next(iter(self.pages))) and self.pages[oldest] is not page and self._open > MOST_OPEN:
            del self.pages[oldest]

    @property
    def _open(self) -> int:
        """The characters of the pages."""
        return sum(len(page.text) for page in {id(page): page for page in self.pages.values()}.values())

    def close(self) -> None:
        """Let go of the pages."""
        self.pages.clear()

    def number(self, url: WebUrl, title: str) -> int:
        """Return the number of a source, which is new unless its address is known."""
        known = self._numbers.get(url.text)
        if known is None:
            known = self._last = self._last + 1
            self._add(known, Source(url.text, title))
        return known

    def cite(self, file_id: str, filename: str) -> int:
        """Return a number for a part of a file, which is new."""
        self._last += 1
        self.sources[self._last] = FileSource(file_id, filename)
        return self._last

    def _add(self, number: int, source: Source) -> None:
        self.sources[number] = source
        self._numbers[source.url] = number

    def recall(self, items: Iterable[ResponseItem]) -> None:
        """Take up the sources of a conversation, the first time. Numbers that it has used are not given again."""
        if self._recalled:
            return
        self._recalled = True
        ours: set[str] = set()
        for item in items:
            view = item.view
            if isinstance(view, FunctionCall) and view.namespace is None and _OURS.fullmatch(view.name):
                ours.add(view.call_id)
            if not any(bracket in item.raw for bracket in _BRACKETS):
                continue
            if isinstance(view, FunctionCallOutput) and view.call_id in ours:
                text = view.output if isinstance(view.output, str) else text_of(view.output)
                for number, title, url in _SOURCE.findall(text):
                    self._add(int(number), FileSource(url, title) if url.startswith("file-") else Source(url, title))
            said = msgspec.json.encode(msgspec.json.decode(item.raw)).decode()
            self._last = max(self._last, *map(int, _NUMBER.findall(said)), 0)


class Archive:
    """Pages and hits of each owner that were seen lately: all that a request may use which has no access to the web."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Page] = OrderedDict()
        self._characters = 0

    def keep(self, owner: str, page: Page, *names: str) -> None:
        """Keep a page, also under other addresses that lead to it."""
        for name in (page.url.text, *names):
            old = self._kept.pop((owner, name), None)
            self._characters += len(page.text) - (0 if old is None else len(old.text))
            self._kept[owner, name] = page
        while len(self._kept) > MOST_KEPT or self._characters > MOST_CHARACTERS:
            _, dropped = self._kept.popitem(last=False)
            self._characters -= len(dropped.text)

    def keep_hit(self, owner: str, hit: Hit) -> None:
        """Keep a hit, unless its page is there."""
        if (owner, hit.url.text) not in self._kept:
            self.keep(owner, Page(hit.url, hit.title, hit.text, whole=False))

    def page(self, owner: str, url: WebUrl) -> Page | None:
        """Return a whole page."""
        found = self._kept.get((owner, url.text))
        return found if found is not None and found.whole else None

    async def search(self, owner: str, query: str) -> list[Hit]:
        """Return what has words of the query, the best first."""
        words = list(dict.fromkeys(re.findall(r"\w+", query.casefold())))[:MOST_WORDS]
        scored: dict[str, tuple[int, Page]] = {}
        for page in {page.url.text: page for (of, _), page in self._kept.items() if of == owner}.values():
            text = f"{page.title} {page.text}".casefold()
            scored[page.url.text] = (sum(word in text for word in words), page)
            await asyncio.sleep(0)  # all pages together take seconds
        best = sorted(scored.values(), key=lambda entry: -entry[0])
        return [Hit(page.url, page.title, page.text) for score, page in best if score]
