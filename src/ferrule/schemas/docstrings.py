"""Parse parameter descriptions from docstrings in Google, numpy and reST style."""

import inspect
import re
from typing import NamedTuple


class Docstring(NamedTuple):
    """A docstring's descriptions of the whole and of each parameter; texts are one paragraph without line breaks."""

    description: str
    parameters: dict[str, str]


_GOOGLE = re.compile(r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):\s*")
_NUMPY = re.compile(r"(Parameters|Other Parameters|Arguments)\s*")
_RULE = re.compile(r"\s*-{3,}\s*")
_ENTRY = re.compile(r"\*{0,2}(?P<names>\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?:\([^)]*\))?\s*:(?:\s+(?P<text>.*))?")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(?P<names>\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_REST = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<names>\w+)\s*:(?:\s+(?P<text>.*))?"
)
_REST_OTHER = re.compile(r":(?:type|rtype|returns?|raises?|except|exception|meta|var|ivar|cvar|vartype)\b[^:]*:.*")


def read_docstring(text: str | None) -> Docstring:
    """Return the description without its parameter sections, and the description of each parameter."""
    lines = inspect.cleandoc(text or "").splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if _GOOGLE.fullmatch(line) and _indent(lines, at + 1) > 0:
            at = _read_entries(lines, at + 1, _indent(lines, at + 1), _ENTRY, parameters)
        elif _NUMPY.fullmatch(line) and at + 1 < len(lines) and _RULE.fullmatch(lines[at + 1]):
            at = _read_entries(lines, at + 2, 0, _NUMPY_ENTRY, parameters)
        elif _REST.fullmatch(line):
            at = _read_entries(lines, at, 0, _REST, parameters)
        elif _REST_OTHER.fullmatch(line):
            at = _end_of_block(lines, at + 1, 0)
        else:
            kept.append(line)
            at += 1
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters)


def _indent(lines: list[str], at: int) -> int:
    """Count the columns before the line's text, 0 past the end."""
    return len(lines[at]) - len(lines[at].lstrip()) if at < len(lines) else 0


def _end_of_block(lines: list[str], at: int, margin: int) -> int:
    """Find the first line from `at` on that is no deeper than `margin`; blank lines before it are not the block's."""
    end = at
    while at < len(lines) and (not lines[at].strip() or _indent(lines, at) > margin):
        at += 1
        end = at if lines[at - 1].strip() else end
    return end


def _read_entries(lines: list[str], at: int, margin: int, entry: re.Pattern[str], parameters: dict[str, str]) -> int:
    """Read `name: text` entries that begin at column `margin`; return the first line after them."""
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        match = entry.fullmatch(lines[at].strip()) if _indent(lines, at) == margin else None
        if match is None or _begins_section(lines, at):
            break
        end = _end_of_block(lines, at + 1, margin)
        texts = [match.groupdict().get("text") or "", *lines[at + 1 : end]]
        description = " ".join(part for text in texts if (part := text.strip()))
        parameters.update((name.strip(" *"), description) for name in match["names"].split(","))
        at = end
    return at


def _begins_section(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and _RULE.fullmatch(lines[at + 1]) is not None
