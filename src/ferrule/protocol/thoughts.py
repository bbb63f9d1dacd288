"""Reasoning that a model writes into its message, between `<think>` and `</think>` at the beginning. History keeps it,
for models want it back as they wrote it; people are shown what follows."""

_OPEN = "<think>"
_CLOSE = "</think>"


class ShownText:
    """The text of a message as it arrives, without the thoughts before it."""

    __slots__ = ("_held", "_inside", "_past", "_thought")

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._past = False
        self._thought = False

    def feed(self, delta: str) -> str:
        """What is to be shown now; the beginning of a tag is held back until it is known to be one."""
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
        """What was held back and turned out to be no tag."""
        held, self._held, self._past = self._held, "", True
        if self._inside:
            return ""
        return held.lstrip() if self._thought else held


def shown(text: str) -> str:
    """The text without the thoughts at its beginning."""
    if not text.lstrip().startswith(_OPEN):
        return text
    reader = ShownText()
    return reader.feed(text) + reader.rest()
