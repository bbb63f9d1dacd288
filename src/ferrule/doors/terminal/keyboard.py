"""What the terminal sends, as keys and pasted texts.

Textual's own reader ends the program at a byte that is no UTF-8, and takes an escape sequence inside a paste, with up
to 30 characters behind it, for keys: a line break among them would send the message, a `y` answer a dialog. So pastes
are taken apart before it sees them.

Source: xterm's bracketed paste mode (DECSET 2004).
"""

from codecs import getincrementaldecoder
from collections.abc import Iterator

from textual._xterm_parser import XTermParser
from textual.events import Paste
from textual.message import Message

BEGIN, END = "\x1b[200~", "\x1b[201~"
LONGEST_PASTE = 8 * 1024 * 1024
"""Characters of a paste that are taken: more than any model reads. One more stands for all that are not."""


class Keyboard:
    """Makes messages of bytes."""

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()
        self._held = ""
        """The end of what has come, if it may be the beginning of a mark."""
        self._pasted: list[str] | None = None
        """What has come of a paste."""
        self._room = 0

    @property
    def holds(self) -> bool:
        """Whether something waits for the next bytes, which may be a key alone: `settle` soon."""
        return bool(self._held) and self._pasted is None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield what has come whole with these bytes."""
        text, self._held = self._held + self._decode(data), ""
        while text:
            mark = BEGIN if self._pasted is None else END
            part, found, text = text.partition(mark)
            if not found:
                self._held = _begun(part, mark)
                part = part.removesuffix(self._held)
            if self._pasted is None:
                yield from self._keys(part)
                if found:
                    self._pasted, self._room = [], LONGEST_PASTE + 1
            else:
                self._pasted.append(part[: self._room])
                self._room -= len(self._pasted[-1])
                if found:
                    yield Paste("".join(self._pasted).replace("\0", ""))
                    self._pasted = None

    def settle(self) -> Iterator[Message]:
        """Yield keys that stand for themselves, as nothing came behind them: Esc."""
        if self.holds:
            held, self._held = self._held, ""
            yield from self._keys(held)
        yield from self._parser.tick()

    def _keys(self, text: str) -> Iterator[Message]:
        try:
            if text:  # for the parser, no text is the end
                yield from self._parser.feed(text)
        except (ValueError, OverflowError):  # the code of a character that there cannot be
            self._parser = XTermParser()


def _begun(text: str, mark: str) -> str:
    """Return the end of a text that is the beginning of a mark."""
    return next((mark[:size] for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), "")
