"""Ways in which a text can differ from the lines it was copied from, and the corrected text."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_GUTTER = re.compile(r"[ \t]*L?\d+(?:[:|\t→]| {1,2})\s?")
_ESCAPE = re.compile(r"\\(\\|n|r|t|\"|'|`|u[0-9a-fA-F]{4})")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_MEANT = {"n": "\n", "r": "\r", "t": "\t"}
_SIGN = re.compile(r"[-+ ]")
_FENCE = "```"


class Meant(NamedTuple):
    """A possible original: `text` is what may have been meant. `how` precedes "it stands at line N", `advice` follows
    it."""

    text: str
    how: str
    advice: str


def meanings(text: str) -> Iterator[Meant]:
    """Yield each way in which this text may have been miscopied; none is checked against a file here."""
    for undo, how, advice in _WAYS:
        meant = undo(text)
        if meant not in (None, text):
            yield Meant(meant or "", how, advice)


def _without_gutter(text: str) -> str | None:
    lines = text.split("\n")
    if not all(_GUTTER.match(line) for line in lines if line.strip()):
        return None
    return "\n".join(_GUTTER.sub("", line, count=1) for line in lines)


def _unescaped(text: str) -> str | None:
    if "\\" not in text:
        return None
    return _ESCAPE.sub(lambda match: _character(match[1]), text).replace("\r\n", "\n")


def _character(escape: str) -> str:
    return chr(int(escape[1:], 16)) if escape[0] == "u" else _MEANT.get(escape, escape)


def _without_entities(text: str) -> str | None:
    if not _ENTITY.search(text):
        return None
    from html import unescape

    return _ENTITY.sub(lambda match: unescape(match[0]), text)


def _without_signs(text: str) -> str | None:
    """Return a hunk's lines as they were before it."""
    lines = [line for line in text.split("\n") if line]
    if not any(line[0] in "-+" for line in lines) or not all(map(_SIGN.match, lines)):
        return None
    return "\n".join(line[1:] for line in lines if line[0] != "+")


def _without_fence(text: str) -> str | None:
    lines = text.strip().split("\n")
    if len(lines) < 3 or not lines[0].startswith(_FENCE) or lines[-1].strip() != _FENCE:
        return None
    return "\n".join(lines[1:-1])


_WAYS: tuple[tuple[Callable[[str], str | None], str, str], ...] = (
    (
        _without_gutter,
        "without the line numbers in front",
        "Line numbers shown by a file reader are no part of the file: leave them out.",
    ),
    (
        _unescaped,
        r"with its escapes read (`\n` as a line end, `\t` as a tab, `\"` as a quote)",
        "The text is taken as it is: send these characters themselves, not their escapes.",
    ),
    (
        _without_entities,
        "with `&lt;`, `&gt;`, `&amp;` and their like read as characters",
        "The text is taken as it is: send the characters themselves.",
    ),
    (
        _without_signs,
        "without the signs of a diff",
        "This takes the text of the file alone: leave out the `-`, `+` and blank before each line, and added lines.",
    ),
    (_without_fence, "without the code fence", "Leave out the ``` lines."),
)
