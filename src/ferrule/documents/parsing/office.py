"""Office files: zips of XML. Nothing is unpacked to a disk, and only so much is unpacked at all.

Source: ECMA-376 (docx, pptx, xlsx), OpenDocument 1.3 (odt, odp, ods).
"""

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from xml.parsers import expat

from .refusal import invalid, unsupported

ZIP = b"PK\x03\x04"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
MAX_UNPACKED = 100 << 20
"""Bytes of a file's parts, unpacked: a zip bomb has a thousand times its own size."""
TOO_MUCH = "The office file has too much text: split it."
MAX_ENTRIES = 10_000
MAX_COLUMNS = 256
"""Cells of a row that are kept in their columns where those before are empty."""
BLOCK = 4 << 20
"""Bytes that are unpacked at a time: the parser of XML looks at what has not ended again with each."""
_DATES = frozenset({*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)})
"""The numbers of the built-in formats of dates and times."""
_DATE_FORMAT = re.compile(r"[ymdhs]", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')
_COLUMN = re.compile(r"([A-Z]{1,3})[0-9]+")

Attributes = Mapping[str, str]


def read_office(data: bytes, most: int) -> str:
    """Return the text of an office file, as Markdown. Raises `RefusedError` above `most` characters."""
    try:
        parts = _Parts(data, most)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise invalid("The file is a damaged zip or office file.") from error
    for sign, reading in _KINDS:
        if sign in parts.names:
            return reading(parts)
    raise unsupported("Zips are not read: send the files that are in it.")


class _Parts:
    """The parts of an office file, and how much of them may still be unpacked and written."""

    def __init__(self, data: bytes, most: int) -> None:
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self.names = frozenset(self._zip.namelist())
        self._left = MAX_UNPACKED
        self._most = self._read = most
        """Characters that may still be written, and read."""
        self.lines = list[str]()
        if len(self.names) > MAX_ENTRIES:
            raise invalid(f"The office file has more than {MAX_ENTRIES:,} parts.")

    def blocks(self, name: str) -> "Iterator[bytes]":
        """Yield a part, unpacked. Raises `RefusedError` if it is too much."""
        with self._zip.open(name) as part:
            while block := part.read(BLOCK):
                self._left -= len(block)
                if self._left < 0:
                    raise invalid(f"The office file has more than {MAX_UNPACKED >> 20} MB unpacked.")
                yield block

    def numbered(self, pattern: str) -> "list[tuple[int, str]]":
        """Return the parts whose name has a number, by their number."""
        found = (re.fullmatch(pattern, name) for name in self.names)
        return sorted((int(one[1]), one[0]) for one in found if one)

    def add(self, line: str) -> None:
        """Add a line of text. Raises `RefusedError` if there are too many."""
        self._most -= len(line) + 1
        if self._most < 0:
            raise invalid(TOO_MUCH)
        self.lines.append(line)

    def walk(self, name: str, walker: "_Walker") -> None:
        """Read a part of XML, if it is there. Raises `RefusedError` for one with definitions of its own: entities that
        name each other are a bomb, and office programs write none."""
        if name not in self.names:
            return
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = lambda tag, attributes: walker.start(_local(tag), attributes)
        parser.EndElementHandler = lambda tag: walker.end(_local(tag))
        parser.CharacterDataHandler = lambda text: self._take(text, walker)
        parser.StartDoctypeDeclHandler = _refuse_doctype
        try:
            for block in self.blocks(name):
                parser.Parse(block, False)
            parser.Parse(b"", True)
        except (expat.ExpatError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise invalid("The office file is damaged.") from error

    def _take(self, text: str, walker: "_Walker") -> None:
        self._read -= len(text)
        if self._read < 0:
            raise invalid(TOO_MUCH)
        walker.text(text)


def _refuse_doctype(*_: object) -> None:
    raise invalid("The office file defines entities, which no office program does.")


def _local(tag: str) -> str:
    return tag.rpartition(":")[2]


class _Walker:
    """Takes what a part of XML says."""

    def start(self, tag: str, attributes: Attributes) -> None:
        """Take the start of an element, by its name without a prefix."""

    def end(self, tag: str) -> None:
        """Take its end."""

    def text(self, text: str) -> None:
        """Take characters."""


class _Prose(_Walker):
    """Paragraphs and tables. `runs` are the elements whose characters are text; None: all in a paragraph."""

    def __init__(self, add: "Callable[[str], None]", runs: "frozenset[str] | None") -> None:
        self._add = add
        self._runs = runs
        self._pieces = list[str]()
        self._depth = self._skipped = self._written = 0
        self._heading = ""
        self._cells = list[list[str]]()
        """The cells of the row that is read; a table within one is text of its cell."""
        self._rows = 0

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == "Fallback":  # the same again, for older programs
            self._skipped += 1
        elif tag in ("p", "h"):
            self._depth += 1
            if tag == "h":
                self._heading = _hashes(attributes.get("text:outline-level", "1"))
        elif tag == "pStyle":
            found = re.fullmatch(r"[Hh]eading ?([1-6])", attributes.get("w:val", ""))
            self._heading = _hashes(found[1]) if found else "# " if attributes.get("w:val") == "Title" else ""
        elif tag in ("tr", "table-row"):
            self._rows += 1
            if self._rows == 1:
                self._cells = []
        elif tag in ("tc", "table-cell") and self._rows == 1:
            self._cells.append([])
        elif self._depth and tag in ("tab", "br", "cr", "line-break", "s"):
            self._take("\t" if tag == "tab" else " " if tag == "s" else "\n")
        elif self._runs is not None and tag in self._runs:
            self._written += 1

    def end(self, tag: str) -> None:
        if tag == "Fallback":
            self._skipped -= 1
        elif tag in ("p", "h"):
            self._depth -= 1
            if not self._depth:
                self._end_paragraph()
        elif tag in ("tr", "table-row"):
            self._rows -= 1
            if not self._rows and any(map(any, self._cells)):
                self._add(" | ".join(" ".join(cell).replace("\n", " ") for cell in self._cells))
        elif tag == "tbl" and not self._rows:
            self._add("")
        elif self._runs is not None and tag in self._runs:
            self._written -= 1

    def text(self, text: str) -> None:
        if self._depth if self._runs is None else self._written:
            self._take(text)

    def _take(self, text: str) -> None:
        if not self._skipped:
            self._pieces.append(text)

    def _end_paragraph(self) -> None:
        text = "".join(self._pieces).strip()
        self._pieces.clear()
        heading, self._heading = self._heading, ""
        if not text:
            return
        if self._rows:
            if self._cells:
                self._cells[-1].append(text)
        else:
            self._add(f"{heading}{text}\n")


def _hashes(level: str) -> str:
    return "#" * min(6, int(level)) + " " if level.isdigit() and int(level) else ""


def _read_docx(parts: _Parts) -> str:
    for name in ("document", "footnotes", "endnotes"):
        parts.walk(f"word/{name}.xml", _Prose(parts.add, frozenset({"t"})))
    return "\n".join(parts.lines)


def _read_pptx(parts: _Parts) -> str:
    for title, pattern in (
        ("Slide", r"ppt/slides/slide([0-9]{1,6})\.xml"),
        ("Notes", r"ppt/notesSlides/notesSlide([0-9]{1,6})\.xml"),
    ):
        for number, name in parts.numbered(pattern):
            parts.add(f"## {title} {number}\n")
            parts.walk(name, _Prose(parts.add, frozenset({"t"})))
    return "\n".join(parts.lines)


def _read_open_document(parts: _Parts) -> str:
    parts.walk("content.xml", _Prose(parts.add, None))
    return "\n".join(parts.lines)


class _Texts(_Walker):
    """The shared texts of a workbook."""

    def __init__(self) -> None:
        self.found = list[str]()
        self._pieces = list[str]()
        self._reading = self._aside = False

    def start(self, tag: str, attributes: Attributes) -> None:
        self._aside = self._aside or tag == "rPh"  # how it is pronounced
        self._reading = tag == "t" and not self._aside

    def end(self, tag: str) -> None:
        self._reading = False
        if tag == "rPh":
            self._aside = False
        elif tag == "si":
            self.found.append("".join(self._pieces))
            self._pieces.clear()

    def text(self, text: str) -> None:
        if self._reading:
            self._pieces.append(text)


class _Styles(_Walker):
    """Which styles of cells are dates."""

    def __init__(self) -> None:
        self.dates = list[bool]()
        self._own = set[str]()
        self._within = False

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == "numFmt" and _DATE_FORMAT.search(_QUOTED.sub("", attributes.get("formatCode", ""))):
            self._own.add(attributes.get("numFmtId", ""))
        elif tag == "cellXfs":
            self._within = True
        elif tag == "xf" and self._within:
            number = attributes.get("numFmtId", "")
            self.dates.append(number in self._own or (number.isdigit() and int(number) in _DATES))

    def end(self, tag: str) -> None:
        self._within = self._within and tag != "cellXfs"


class _Names(_Walker):
    """The attributes of the elements of one name."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.found = list[Attributes]()

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == self._tag:
            self.found.append(dict(attributes))


class _Sheet(_Walker):
    """The rows of a sheet."""

    def __init__(self, add: "Callable[[str], None]", texts: "list[str]", dates: "list[bool]", since: datetime) -> None:
        self._add = add
        self._texts = texts
        self._dates = dates
        self._since = since
        self._row = list[str]()
        self._pieces = list[str]()
        self._type = self._place = ""
        self._date = self._reading = False

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == "row":
            self._row.clear()
        elif tag == "c":
            self._type, self._place = attributes.get("t", "n"), attributes.get("r", "")
            style = attributes.get("s", "")
            self._date = style.isdigit() and int(style) < len(self._dates) and self._dates[int(style)]
            self._pieces.clear()
        self._reading = tag in ("v", "t")

    def end(self, tag: str) -> None:
        self._reading = False
        if tag == "c":
            column = _column(self._place)
            if len(self._row) < column <= MAX_COLUMNS:
                self._row += [""] * (column - len(self._row))
            self._row.append(self._value("".join(self._pieces)))
        elif tag == "row" and any(self._row):
            self._add(" | ".join(self._row))

    def text(self, text: str) -> None:
        if self._reading:
            self._pieces.append(text)

    def _value(self, said: str) -> str:
        if self._type == "s":
            return self._texts[int(said)] if said.isdigit() and int(said) < len(self._texts) else ""
        if self._type == "b":
            return "TRUE" if said == "1" else "FALSE"
        if self._type == "n" and self._date:
            return _date(said, self._since)
        return said.replace("\n", " ")


def _column(place: str) -> int:
    """Return the number of a cell's column, from 0."""
    found = _COLUMN.fullmatch(place)
    number = 0
    for letter in found[1] if found else "":
        number = number * 26 + ord(letter) - 64
    return max(0, number - 1)


def _date(said: str, since: datetime) -> str:
    try:
        moment = since + timedelta(seconds=round(float(said) * 86_400))
    except (ValueError, OverflowError):
        return said
    if float(said) < 1:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(" 00:00:00")


def _read_xlsx(parts: _Parts) -> str:
    texts, styles, sheets, links = _Texts(), _Styles(), _Names("sheet"), _Names("Relationship")
    about = _Names("workbookPr")
    parts.walk("xl/sharedStrings.xml", texts)
    parts.walk("xl/styles.xml", styles)
    parts.walk("xl/workbook.xml", sheets)
    parts.walk("xl/workbook.xml", about)
    parts.walk("xl/_rels/workbook.xml.rels", links)
    late = any(one.get("date1904") in ("1", "true") for one in about.found)
    since = datetime(1904, 1, 1) if late else datetime(1899, 12, 30)
    targets = {one.get("Id"): one.get("Target", "") for one in links.found}
    for sheet in sheets.found:
        target = targets.get(sheet.get("r:id"), "")
        parts.add(f"## {sheet.get('name', '')}\n")
        parts.walk(
            target.lstrip("/") if target.startswith("/") else posixpath.normpath(f"xl/{target}"),
            _Sheet(parts.add, texts.found, styles.dates, since),
        )
        parts.add("")
    return "\n".join(parts.lines)


_KINDS: "tuple[tuple[str, Callable[[_Parts], str]], ...]" = (
    ("word/document.xml", _read_docx),
    ("ppt/presentation.xml", _read_pptx),
    ("xl/workbook.xml", _read_xlsx),
    ("content.xml", _read_open_document),
)
"""Each with a part that no other has."""
