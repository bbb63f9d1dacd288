"""What the user has sent before, in this session and in others: one file in Ferrule's home."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ferrule.locks import lock_patiently

FILE = "prompt_history.jsonl"
MODE = 0o600
READ_BYTES = 512 * 1024
"""How much of the file's end is read: some thousand messages."""
KEPT_BYTES = 4 * 1024 * 1024
"""A longer file is cut to its end."""
LONGEST = 16 * 1024
"""Bytes of one message that is kept; a longer one is a paste."""


class PromptHistory:
    """Entries from the oldest to the newest. A file that cannot be read or written only means a shorter memory."""

    def __init__(self, home: str) -> None:
        self._path = Path(home, FILE)
        self._entries: list[str] | None = None
        self._place = 0
        self._draft = ""

    @property
    def entries(self) -> list[str]:
        """All entries; read at the first look."""
        if self._entries is None:
            self._entries = _read(self._path)
            self._place = len(self._entries)
        return self._entries

    def add(self, text: str) -> None:
        """Keep a message. One line is one write, so that sessions beside each other do not mix."""
        entries = self.entries
        if text and (not entries or entries[-1] != text):
            entries.append(text)
            line = msgspec.json.encode(text) + b"\n"
            if len(line) <= LONGEST:
                _append(self._path, line)
        self._place = len(entries)

    def earlier(self, now: str) -> str | None:
        """Return the entry before; `now` is what is written, which comes back at the end. None at the first."""
        if self._place == len(self.entries):
            self._draft = now
        if self._place == 0:
            return None
        self._place -= 1
        return self.entries[self._place]

    def later(self) -> str | None:
        """Return the entry behind, at last what was being written; None there."""
        if self._place >= len(self.entries):
            return None
        self._place += 1
        return self._draft if self._place == len(self.entries) else self.entries[self._place]


def _read(path: Path) -> list[str]:
    try:
        with _opened(path, os.O_RDONLY) as file:
            size = os.fstat(file).st_size
            lines = os.pread(file, READ_BYTES, max(size - READ_BYTES, 0)).split(b"\n")
    except OSError:
        return []
    entries = []
    for line in lines[1 if size > READ_BYTES else 0 :]:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            entries.append(msgspec.json.decode(line, type=str))
    return entries


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open the file. Raises `OSError`, too, for what is none: a pipe or a device could hold up the screen."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, MODE)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a file")
        yield file
    finally:
        os.close(file)


def _append(path: Path, line: bytes) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            lock_patiently(file)
            size = os.fstat(file).st_size
            torn = size and os.pread(file, 1, size - 1) != b"\n"
            size += os.write(file, b"\n" + line if torn else line)
            if size > KEPT_BYTES:
                _shorten(path, os.pread(file, KEPT_BYTES // 2, size - KEPT_BYTES // 2).partition(b"\n")[2])


def _shorten(path: Path, kept: bytes) -> None:
    """Keep no more than this, in the same file: others may have it open, and it may be a link."""
    with _opened(path, os.O_WRONLY) as file:
        os.pwrite(file, kept, 0)
        os.ftruncate(file, len(kept))
