"""Searching the web: what every backend takes and returns."""

import html
import re
import unicodedata
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ferrule.protocol.errors import FerruleError
from ferrule.web.marks import disarmed
from ferrule.web.urls import BadUrl, WebUrl, read_url

MAX_TITLE = 200
MAX_TEXT = 20_000
"""Characters of a hit: more is a page, which is opened."""
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_KEPT = "\n\t\u200c\u200d"
"""Control and format characters that text needs: line breaks, and joiners of scripts."""
_UNSEEN = ("Cc", "Cf", "Co", "Cs")


class SearchFailed(FerruleError):
    """The backend did not answer: one sentence for the model, without addresses or keys."""


class Location(msgspec.Struct, frozen=True):
    """Where the user is, as far as it is known. `country` has two letters."""

    country: str | None = None
    region: str | None = None
    city: str | None = None
    timezone: str | None = None

    def __str__(self) -> str:
        place = ", ".join(filter(None, (self.city, self.region, self.country)))
        zone = f"time zone {self.timezone}" if self.timezone else ""
        return "; ".join(filter(None, (place, zone)))


class Hit(msgspec.Struct, frozen=True):
    """A page that was found. `title` is one line; `text` is what the backend shows of the page."""

    url: WebUrl
    title: str
    text: str


class SearchBackend(Protocol):
    """A way to search. `name` is its name in the configuration. `works_offline`: it may have an index of its own.
    `takes_domains`: it looks at the sites that are wanted; else they are named in the query."""

    @property
    def name(self) -> str: ...
    @property
    def works_offline(self) -> bool: ...
    @property
    def takes_domains(self) -> bool: ...

    async def search(
        self, query: str, *, count: int, domains: Sequence[str], location: Location | None, offline: bool
    ) -> list[Hit]:
        """Return about `count` hits, the best first. `domains` are the sites that are wanted, each with all below it;
        hits of others are left out by the caller. Raises `SearchFailed`."""
        ...

    async def aclose(self) -> None:
        """End what belongs to it."""
        ...


def make_hit(url: object, title: object, text: object) -> Hit | None:
    """Return a hit as a backend gives it; None if its address is none of a web page."""
    try:
        address = read_url(str(url))
    except BadUrl:
        return None
    shown = one_line(plain(title if isinstance(title, str) else ""))[:MAX_TITLE]
    return Hit(address, shown or address.host, plain(text if isinstance(text, str) else "")[:MAX_TEXT].strip())


def plain(markup: str) -> str:
    """Return the text of a snippet, which may have tags and entities."""
    return clean(html.unescape(_TAG.sub("", markup)))


def clean(text: str) -> str:
    """Return text of the web without marks of ours and without characters that nobody sees."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    unseen = [c for c in set(text) if c not in _KEPT and unicodedata.category(c) in _UNSEEN]
    if unseen:
        text = re.sub(f"[{re.escape(''.join(unseen))}]+", "", text)
    return disarmed(text)


def one_line(text: str) -> str:
    """Return a text with single blanks instead of all white space."""
    return " ".join(text.split())
