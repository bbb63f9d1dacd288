"""Read a page of the web as text: through the guard, with limits on redirects, size and time."""

import codecs
import re

import msgspec

from ferrule.documents.extraction import Extractor, Place, Unreadable
from ferrule.egress.guard import Guard
from ferrule.web.download import Downloads, PageRefused, Permit
from ferrule.web.search import MAX_TITLE, clean, one_line
from ferrule.web.urls import WebUrl

MAX_BYTES = 10 << 20
PAGE_S = 20.0
"""Seconds until a page is here, with its redirects."""
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-ndjson|rtf)|.+\+(?:json|xml)"
)
_UNSURE = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([a-zA-Z0-9_.:-]{2,40})""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml[^>]{0,100}?encoding\s*=\s*["']([a-zA-Z0-9_.:-]{2,40})["']""")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ALIASES = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252"}
"""What browsers read instead: pages that claim the former are written in the latter."""
_OF_PYTHON = frozenset(
    {"idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "unicode-escape", "utf-7"}
)
"""Encodings that no page is written in. Some raise whatever a page has, and punycode takes minutes for a megabyte."""
_KIND = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,60}")
"""A type as RFC 6838 writes it: anything else is a text that a server wants a model to read."""
HEADERS = {
    "accept": "text/html,application/xhtml+xml,application/pdf,text/plain;q=0.9,application/json;q=0.9,*/*;q=0.5",
}


class Page(msgspec.Struct, frozen=True):
    """A page as text, at the address where it was found in the end; not `whole`: what a search showed of it."""

    url: WebUrl
    title: str
    text: str
    whole: bool = True


class PageReader:
    """Opens pages, and parses them in `place`. Belongs to one event loop."""

    def __init__(
        self, guard: Guard, *, ca_file: str | None = None, seconds: float = PAGE_S, place: Place | None = None
    ) -> None:
        self._downloads = Downloads(guard, most=MAX_BYTES, seconds=seconds, ca_file=ca_file, headers=HEADERS)
        self._extractor = Extractor(place)

    async def read(self, url: WebUrl, permit: Permit) -> Page:
        """Open a page. `permit` is asked before each redirect, too. Raises `PageRefused`."""
        found = await self._downloads.get(url, permit)
        try:
            return await self._page(found.url, found.type, found.data)
        except Unreadable as error:
            raise PageRefused(str(error)) from error

    async def aclose(self) -> None:
        """Close the connections and end the processes."""
        await self._downloads.aclose()
        await self._extractor.aclose()

    async def _page(self, url: WebUrl, declared: str, data: bytes) -> Page:
        kind, charset = _type_of(declared), _charset_of(declared)
        if not data.strip():
            raise PageRefused(f"{url.text} is empty.")
        if kind == "application/pdf" or (kind in _UNSURE and data[:1024].lstrip().startswith(b"%PDF-")):
            found = await self._extractor.read("pdf", url.text, data)
            return _whole(url, found.title, found.text, "a PDF without text: it may be a scan")
        if kind not in _HTML and kind not in _UNSURE and not _TEXT.fullmatch(kind):
            shown = kind if _KIND.fullmatch(kind) else "of an odd type"
            raise PageRefused(f"{url.text} is {shown}, which is not read: only HTML, PDF, text and JSON are.")
        if kind in _UNSURE and b"\0" in data[:4096] and not data.startswith(tuple(bom for bom, _ in _BOMS)):
            raise PageRefused(f"{url.text} is no text: only HTML, PDF, text and JSON are read.")
        text = decoded(data, charset)
        if kind in _HTML or (kind in _UNSURE and text.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))):
            found = await self._extractor.read("html", url.text, text.encode(errors="replace"))
            return _whole(url, found.title, found.text, "a page without text of its own: a script may write it")
        return _whole(url, "", text, "empty")


def _whole(url: WebUrl, title: str, text: str, nothing: str) -> Page:
    shown = clean(text).strip()
    if not shown:
        raise PageRefused(f"{url.text} is {nothing}.")
    return Page(url, one_line(clean(title))[:MAX_TITLE] or url.host, shown)


def decoded(data: bytes, charset: str) -> str:
    """Return a page's text: by its byte order mark, by the `charset` of its type, by what it says itself; else UTF-8,
    and what is none is Western."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return data.decode(name, "replace")
    said = _META.search(data[:4096]) or _XML.match(data[:200])
    for name in (charset, said[1].decode() if said else ""):
        if (encoding := _encoding(name)) is not None:
            return data.decode(encoding, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _encoding(name: str) -> str | None:
    """Return Python's name of a character encoding; None if it is none."""
    try:
        found = codecs.lookup(_ALIASES.get(name.lower(), name))
    except (LookupError, ValueError):
        return None
    return found.name if found._is_text_encoding and found.name not in _OF_PYTHON else None


def _type_of(declared: str) -> str:
    return declared.partition(";")[0].strip().lower()


def _charset_of(declared: str) -> str:
    found = re.search(r"""charset\s*=\s*["']?([^\s;"']{2,40})""", declared, re.IGNORECASE)
    return found[1] if found else ""
