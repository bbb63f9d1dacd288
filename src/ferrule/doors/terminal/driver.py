"""Textual's driver, for a terminal that may be gone at any moment: its window was closed, its connection ended."""

import os
from io import TextIOWrapper
from typing import IO, Any, cast

from textual.drivers.linux_driver import LinuxDriver


class _Lasting:
    """A stream that goes nowhere once its terminal is gone: a writer that failed would let the program wait for it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as long as somebody is there."""
        try:
            return self._stream.write(text)
        except OSError:
            self._let_go()
            return len(text)

    def flush(self) -> None:
        """Flush, as long as somebody is there."""
        try:
            self._stream.flush()
        except OSError:
            self._let_go()

    def _let_go(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class LastingDriver(LinuxDriver):
    """Writes to a `_Lasting` stream."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self._file is not None:
            self._file = cast("TextIOWrapper", _Lasting(self._file))
