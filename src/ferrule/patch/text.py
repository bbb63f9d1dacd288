"""A file's bytes as lines, and back without losing one."""

from collections.abc import Iterable
from typing import NamedTuple

from ferrule.patch.encoding import PLAIN, Encoding

_BOM = "\ufeff"
LF, CR = "\n", "\r"


def decoded(data: bytes) -> tuple[str, Encoding]:
    """Return the text of any bytes, and the encoding that restores exactly these bytes."""
    try:
        if b"\0" not in data:
            return data.decode(), PLAIN
    except UnicodeDecodeError:
        pass
    from ferrule.patch.guess import encoding_of

    encoding = encoding_of(data)
    return encoding.decode(data), encoding


class Edit(NamedTuple):
    """A replacement of lines `start` (0-based) up to but not including `end` by `added` (no line ends)."""

    start: int
    end: int
    added: tuple[str, ...]


class Text(NamedTuple):
    """A text file split at `newline`: `\\n`, or `\\r` where that alone ends lines. `lines` keep a `\\r` before a `\\n`,
    so that joining them restores every byte; invalid bytes of UTF-8 are surrogate escapes. `terminated`: the last line
    ends with a newline (True for an empty file). `crlf`: most lines end with `\\r\\n`, so new ones do."""

    lines: list[str]
    terminated: bool = True
    crlf: bool = False
    mixed: bool = False
    bom: bool = False
    encoding: Encoding = PLAIN
    newline: str = LF

    @classmethod
    def read(cls, data: bytes, encoding: Encoding | None = None) -> "Text":
        """Read any bytes as text. `encoding` is the known encoding; None detects it."""
        text, encoding = decoded(data) if encoding is None else (encoding.decode(data), encoding)
        bom = text.startswith(_BOM)
        if bom:
            text = text[1:]
        if not text:
            return cls([], bom=bom, encoding=encoding)
        newline = CR if ends_with_cr(text) else LF
        terminated = text.endswith(newline)
        lines = text.split(newline)
        if terminated:
            lines.pop()
        with_cr = text.count("\r\n") if "\r" in text else 0
        if not with_cr:
            return cls(lines, terminated, bom=bom, encoding=encoding, newline=newline)
        ends = text.count("\n")
        crlf = with_cr * 2 > ends or (with_cr * 2 == ends and lines[0].endswith("\r"))
        return cls(lines, terminated, crlf, with_cr != ends, bom, encoding)

    def contents(self) -> list[str]:
        """Return the lines without their line ends. Do not change the list."""
        if not (self.crlf or self.mixed):
            return self.lines
        contents = [line.removesuffix("\r") for line in self.lines]
        if not self.terminated:
            contents[-1] = self.lines[-1]
        return contents

    def ended(self, line: str) -> str:
        """Return a line with this file's line end, without the `\\n`."""
        return line + "\r" if self.crlf else line

    def write(self) -> bytes:
        """Return the bytes again. Raises `UnicodeEncodeError` for a line that the encoding does not have."""
        last = [""] if self.lines and self.terminated else []
        text = self.newline.join(self.lines + last)
        return self.encoding.encode(_BOM + text if self.bom else text)

    def edited(self, edits: Iterable[Edit], *, terminated: bool) -> "Text":
        """Return the text after edits, which are in order and do not overlap."""
        lines: list[str] = []
        position = 0
        for edit in edits:
            lines += self.lines[position : edit.start]
            lines += edit.added
            position = edit.end
        lines += self.lines[position:]
        return Text(lines, terminated, self.crlf, self.mixed, self.bom, self.encoding, self.newline)


def ends_with_cr(text: str) -> bool:
    """Return whether a carriage return alone ends the lines, as on old Macs."""
    return LF not in text and CR in text
