"""Text on a terminal: colours where supported, and no foreign text that could move the cursor."""

import os
import re
from collections.abc import Mapping
from typing import TextIO

DIM, BOLD, RED, GREEN, CYAN = "2", "1", "31", "32", "36"

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Control characters, and those that change the reading direction, which would make the text look different.


class Terminal:
    """Output to one stream. `colored` decides whether `style` does anything."""

    def __init__(self, stream: TextIO, *, colored: bool) -> None:
        self.stream = stream
        self.colored = colored
        self._line_open = False

    @classmethod
    def on(cls, stream: TextIO, env: Mapping[str, str] = os.environ) -> "Terminal":
        """Create a terminal, coloured if the stream supports colours and `NO_COLOR` is not set."""
        return cls(stream, colored=stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb")

    def style(self, text: str, *codes: str) -> str:
        """Return the text in these colours."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.colored and text else text

    def write(self, text: str) -> None:
        """Write at once, without a line break."""
        if text:
            self.stream.write(text)
            self.stream.flush()
            self._line_open = not text.removesuffix("\x1b[0m").endswith("\n")

    def line(self, text: str = "") -> None:
        """Write a separate line."""
        self.end_line()
        self.write(f"{text}\n")

    def end_line(self) -> None:
        """Break the line if one is open."""
        if self._line_open:
            self.write("\n")


def safe(text: str) -> str:
    """Return the text with control characters as escapes such as `\\x1b`; tabs and line breaks stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
