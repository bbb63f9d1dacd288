"""Files of any kind: what a file is, is told by what is in it, not by its name."""

import codecs
import re

from .markup import html_text
from .office import OLE, ZIP, read_office
from .pages import read_pdf
from .refusal import invalid, unsupported

MAX_CHARACTERS = 16_000_000
"""Characters of one file's text: some 4,000,000 tokens."""
MAX_UTF8 = 40_000_000
"""Bytes of them, which is what an answer to the host can hold."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = re.compile(r"[\0-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
"""What is in no text. A form feed and the escape of colours are."""
_MOST_CONTROLS = 0.01
"""Of all characters: an old text may hold a few."""
_OF_PYTHON = frozenset(
    {"idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "unicode-escape", "utf-7"}
)
"""Encodings that no page is written in; punycode takes minutes for a megabyte."""
_HEAD = 1 << 16
_HTML = re.compile(r"\s*(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_HTML_NAMES = (".html", ".htm", ".xhtml")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([a-zA-Z0-9_.:-]{2,40})""", re.IGNORECASE)


def read_file(data: bytes, name: str) -> str:
    """Return a file's text. Raises `RefusedError`, and whatever a parser raises."""
    if not data:
        raise invalid("The file is empty.")
    text = _text(data, name.lower()).strip()
    if not text:
        raise invalid("There is no text in the file: it may be a scan or pictures.")
    if len(text) > MAX_CHARACTERS or len(text.encode("utf-8", "replace")) > MAX_UTF8:
        raise invalid(f"The file has more than {MAX_CHARACTERS:,} characters of text: split it.")
    return text


def _text(data: bytes, name: str) -> str:
    if data[:1024].lstrip().startswith(b"%PDF-"):
        return read_pdf(data, None, MAX_CHARACTERS)[1]
    if data.startswith(ZIP):
        return read_office(data, MAX_CHARACTERS)
    if data.startswith(OLE):
        raise unsupported("Office files of this old or encrypted kind are not read: save it as docx, xlsx or pptx.")
    text = decoded(data)
    return html_text(text) if name.endswith(_HTML_NAMES) or _HTML.match(text) else text


def decoded(data: bytes) -> str:
    """Return what was written in any usual encoding. Raises `RefusedError` for what is no text."""
    text = _decoded(data).replace("\r\n", "\n")
    if len(_CONTROLS.findall(text[:_HEAD])) > _MOST_CONTROLS * min(len(text), _HEAD):
        raise unsupported("The file is no text, and of no other kind that is read here.")
    return text.replace("\0", " ")


def _decoded(data: bytes) -> str:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace")
    if (wide := _wide(data)) is not None:
        return wide
    said = _CHARSET.search(data[:4096])
    for encoding in ("utf-8", _encoding(said[1].decode()) if said else "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeError:
            continue
    return data.decode("cp1252", "replace")


def _encoding(name: str) -> str:
    """Return Python's name of an encoding that pages are written in."""
    try:
        found = codecs.lookup(name)
    except LookupError:
        return "cp1252"
    return found.name if found._is_text_encoding and found.name not in _OF_PYTHON else "cp1252"


def _wide(data: bytes) -> "str | None":
    """Return UTF-16 without a mark: the zeros of its plain letters stand at one side."""
    even, odd = data[:_HEAD:2].count(0), data[1:_HEAD:2].count(0)
    if len(data) % 2 or (even == 0) is (odd == 0):
        return None
    try:
        return data.decode("utf-16-be" if even else "utf-16-le")
    except UnicodeDecodeError:
        return None
