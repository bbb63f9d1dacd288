"""Values as models write them: JSON with its usual mistakes, Python literals, Gemma's notation.

Nothing that is missing is added: a value that does not end is no value, because half of a call must not run.
"""

import json
import re
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
"""Nesting of a value; a deeper one is not read."""

_STRICT = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"\s*")
_QUOTES = ('"""', "'''", '<|"|>', "<escape>", '"', "'")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_KEY = re.compile(r"[^\s{}\[\]\"',:][^{}\[\]\"',:]{0,200}?(?=\s{0,20}:)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", **{char: char for char in "\"'\\/"}}
_PAIRS = {"{": "}", "[": "]", "(": ")"}


class Unreadable(ValueError):
    """This is no value. The first argument says why, the second where."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


class Incomplete(Unreadable):
    """The text ends before the value does."""


def read_value(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at `at`, and its end. Raises `Unreadable`."""
    try:
        return _STRICT.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated"):
            raise Incomplete("it ends too early", error.pos) from error
    except (ValueError, RecursionError):
        pass
    return _value(text, at, 0)


def skip_space(text: str, at: int) -> int:
    """Return the place of the next character that is no white space."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise Unreadable("it is nested too deeply", at)
    at = skip_space(text, at)
    if at == len(text):
        raise Incomplete("it ends too early", at)
    if text[at] == "{":
        return _object(text, at, depth)
    if text[at] in "[(":
        return _list(text, at, depth)
    if text.startswith(_QUOTES, at):
        return _strings(text, at)
    if (number := _NUMBER.match(text, at)) is not None:
        return _number(number[0]), number.end()
    word = _WORD.match(text, at)
    if word is not None and word[0] in _WORDS:
        return _WORDS[word[0]], word.end()
    if word is not None and word.end() == len(text):
        raise Incomplete("it ends too early", at)
    raise Unreadable(f"no value begins with {text[at : at + 20]!r}", at)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}

    def entry(at: int) -> int:
        key, at = _key(text, at)
        at = skip_space(text, at)
        _expect(text, at, ":")
        found[key], at = _value(text, at + 1, depth + 1)
        return at

    return found, _entries(text, at, entry)


def _key(text: str, at: int) -> tuple[str, int]:
    if text.startswith(_QUOTES, at):
        return _strings(text, at)
    bare = _KEY.match(text, at)
    if bare is None:
        if ":" not in text[at:]:
            raise Incomplete("it ends too early", at)
        raise Unreadable(f"no key begins with {text[at : at + 20]!r}", at)
    return bare[0], bare.end()


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []

    def entry(at: int) -> int:
        value, at = _value(text, at, depth + 1)
        found.append(value)
        return at

    return found, _entries(text, at, entry)


def _entries(text: str, at: int, entry: Callable[[int], int]) -> int:
    """Read entries between brackets, with commas between them and perhaps one behind the last."""
    close = _PAIRS[text[at]]
    at = skip_space(text, at + 1)
    while not text.startswith(close, at):
        at = skip_space(text, entry(at))
        if text.startswith(close, at):
            break
        _expect(text, at, ",")
        at = skip_space(text, at + 1)
    return at + 1


def _expect(text: str, at: int, char: str) -> None:
    if at >= len(text):
        raise Incomplete("it ends too early", at)
    if text[at] != char:
        raise Unreadable(f"expected {char!r}, near {text[at : at + 20]!r}", at)


def _strings(text: str, at: int) -> tuple[str, int]:
    """Read a string, and those that follow it directly, as in Python."""
    parts = []
    while True:
        part, at = _string(text, at)
        parts.append(part)
        following = skip_space(text, at)
        if following == at or not text.startswith(("'", '"'), following):
            return "".join(parts), at
        at = following


def _string(text: str, at: int) -> tuple[str, int]:
    quote = next(quote for quote in _QUOTES if text.startswith(quote, at))
    start = at + len(quote)
    if len(quote) > 3:  # a token of the template, so nothing within is escaped
        end = text.find(quote, start)
        if end < 0:
            raise Incomplete("a string does not end", at)
        return text[start:end], end + len(quote)
    end = start
    while not text.startswith(quote, end):
        if end >= len(text):
            raise Incomplete("a string does not end", at)
        end += 2 if text[end] == "\\" else 1
    return _ESCAPE.sub(_unescaped, text[start:end]), end + len(quote)


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    if len(what) > 1:
        return chr(int(what[1:], 16))
    return _ESCAPED.get(what, escape[0])


def as_text(value: object) -> str:
    """Return a value as JSON text."""
    return json.dumps(value, ensure_ascii=False)
