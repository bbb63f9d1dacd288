"""A real terminal, without anybody before it."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from ferrule.doors.headless.terminal import Terminal
from ferrule.process.screen_text import visible_text

PLAIN = {"TERM": "xterm"}


class Tty:
    """A pseudo-terminal and what was written to it."""

    def __init__(self, columns: int, rows: int) -> None:
        self._master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.stream = open(self.slave, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        self.raw = b""
        self._news = asyncio.Event()

    def resize(self, columns: int, rows: int) -> None:
        """Change its size."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def terminal(self, env: Mapping[str, str]) -> Terminal:
        """What `exec` makes of it."""
        return Terminal.on(self.stream, {**PLAIN, **env})

    def type(self, keys: bytes) -> None:
        """Send what somebody types."""
        os.write(self._master, keys)

    @property
    def screen(self) -> list[str]:
        """The lines that can be seen, by scrolling back too."""
        return visible_text(self.raw.decode("utf-8", "replace")).rstrip("\n").split("\n")

    async def until(self, pattern: str) -> str:
        """Wait until the screen has a line that matches, and return the last of them."""
        async with asyncio.timeout(40):
            while not (found := [line for line in self.screen if re.search(pattern, line)]):
                self._news.clear()
                await self._news.wait()
        return found[-1]

    def hang_up(self) -> None:
        """Close the window."""
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        self._master = -1

    def read(self) -> None:
        """Take what was written."""
        with suppress(OSError):  # the other side is closed
            self.raw += os.read(self._master, 65536)
        self._news.set()

    @contextmanager
    def watched(self) -> Iterator["Tty"]:
        """Read in the running loop until the end."""
        loop = asyncio.get_running_loop()
        os.set_blocking(self._master, False)
        loop.add_reader(self._master, self.read)
        try:
            yield self
        finally:
            self.stream.close()
            os.close(self.slave)
            if self._master >= 0:
                self.hang_up()
