"""Reasoning that a model writes at the beginning of a message, between `<think>` and `</think>`. History keeps it,
because models want it back unchanged; people see only what follows."""

_OPEN = "<think>"
_CLOSE = "</think>"


class ShownText:
    """A message's text as it arrives, without the reasoning before it."""

    __slots__ = ("_held", "_inside", "_past", "_thought")

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._past = False
        self._thought = False

    def feed(self, delta: str) -> str:
        """Return the text to show now; hold back a possible start of a tag until it is certain."""
        if self._past:
            return delta
        self._held += delta
        while True:
            if self._inside:
                end = self._held.find(_CLOSE)
                if end < 0:
                    self._held = self._held[-len(_CLOSE) :]
                    return ""
                self._held, self._inside = self._held[end + len(_CLOSE) :], False
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self._held, self._inside = begun[len(_OPEN) :], True
                self._thought = True
            elif _OPEN.startswith(begun):
                return ""
            else:
                return self.rest()

    def rest(self) -> str:
        """Return the text that was held back and turned out to be no tag."""
        held, self._held, self._past = self._held, "", True
        if self._inside:
            return ""
        return held.lstrip() if self._thought else held


def shown(text: str) -> str:
    """Return the text without the reasoning at its beginning."""
    if not text.lstrip().startswith(_OPEN):
        return text
    reader = ShownText()
    return reader.feed(text) + reader.rest()
