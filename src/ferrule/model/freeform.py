"""Freeform tools as JSON functions: extract the text from the arguments while they arrive."""

from collections.abc import Callable

import msgspec

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import decode, encodable

FIELD = "input"
"""The single field of the function that replaces a freeform tool."""

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def wrap(text: str) -> str:
    """Return arguments that contain `text`."""
    return msgspec.json.encode({FIELD: encodable(text)}).decode()


def unwrap(arguments: str) -> str:
    """Return the text in `arguments`; arguments of another shape are the text themselves."""
    try:
        value = decode(arguments)
    except RespondToModel:
        return arguments
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        texts = [text for text in value.values() if isinstance(text, str)]
        if isinstance(value.get(FIELD), str):
            return str(value[FIELD])
        if len(texts) == len(value) == 1:
            return texts[0]
    return arguments


class TextInArguments:
    """A decoder for the first string value of a JSON object, fed in fragments; each character is decoded once."""

    def __init__(self) -> None:
        self._state: Callable[[str], str] = self._before_value
        self._escape = ""
        self._high = ""

    def feed(self, fragment: str) -> str:
        """Return the text that this fragment adds."""
        if self._state == self._in_text and '"' not in fragment and "\\" not in fragment:
            return fragment
        return "".join([self._state(char) for char in fragment])

    def _before_value(self, char: str) -> str:
        if char == ":":
            self._state = self._before_text
        return ""

    def _before_text(self, char: str) -> str:
        if char == '"':
            self._state = self._in_text
        return ""

    def _in_text(self, char: str) -> str:
        if char == "\\":
            self._escape = ""
            self._state = self._in_escape
            return ""
        if char == '"':
            self._state = self._after_text
            return ""
        return char

    def _in_escape(self, char: str) -> str:
        self._escape += char
        if self._escape[0] != "u":
            self._state = self._in_text
            return _ESCAPES.get(char, char)
        if len(self._escape) < 5:
            return ""
        self._state = self._in_text
        return self._unicode(self._escape[1:])

    def _unicode(self, digits: str) -> str:
        try:
            char = chr(int(digits, 16))
        except ValueError:
            return "\ufffd"
        if "\ud800" <= char <= "\udbff":
            self._high = char
            return ""
        high, self._high = self._high, ""
        return encodable(high + char)

    def _after_text(self, _char: str) -> str:
        return ""
