"""The file of results: a line each, appended, on disk before it counts; what is there is never changed."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ferrule.batch.tasks import TaskId, key_of
from ferrule.locks import lock_patiently, try_lock
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import TokenUsage
from ferrule.store.place import NO_SPACE

ENDING_SECONDS = 5.0
"""How long workers of a batch that was killed may take to end: they hold the lock, and their cleaning up takes less."""

Status = Literal["done", "timeout", "turn_limit", "token_limit", "error"]
Verdict = Literal["pass", "fail"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a task; a line of the results.

    `patch` is what `git apply` takes, from what the workspace began with. `messages` are chat messages, from the prompt
    to the last answer; `rollout` is the path of all that was sent and received. `error` is a sentence, unless `done`.
    """

    id: TaskId
    status: Status
    verdict: Verdict | None = None
    check_exit_code: int | None = None
    last_message: str = ""
    patch: str = ""
    usage: TokenUsage = TokenUsage()
    seconds: float = 0.0
    attempts: int = 1
    error: str | None = None
    rollout: str | None = None
    messages: msgspec.Raw = msgspec.Raw(b"[]")

    def line(self) -> bytes:
        """Return the line, with its end."""
        return msgspec.json.encode(self) + b"\n"


class _Head(msgspec.Struct):
    """What is read of a line."""

    id: TaskId
    status: Status


class ResultsFile:
    """The open file, which no other batch has. `path` has no links in it."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it, and take its lock. Raises `UsageError` that says why it cannot be."""
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        except FileNotFoundError as error:
            raise UsageError(f"--out: the folder of {path} does not exist") from error
        except OSError as error:
            raise UsageError(f"--out: {path} cannot be written: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
                raise UsageError(f"--out: {path} is not a file")
            if not try_lock(self.descriptor) and not lock_patiently(self.descriptor, ENDING_SECONDS):
                raise UsageError(f"another `ferrule batch` writes {path}: wait for it, or name another file")
        except BaseException:
            os.close(self.descriptor)
            raise
        self._torn = False

    def read(self, is_ours: Callable[[bytes], bool]) -> Iterator[tuple[str, Status]]:
        """Yield the keys of the results that are there, and their states.

        The last line may have been written in part: it is cut off if it `is_ours`, and is written again. Raises
        `UsageError` for a line that is no result: the file is another one.
        """
        start = 0
        with Path(self.path).open("rb") as file:
            for number, line in enumerate(file, 1):
                whole = line.endswith(b"\n")
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if text.strip():
                    head = _head(text)
                    if head is None and not whole and is_ours(text):
                        os.ftruncate(self.descriptor, start)
                        break
                    if head is None:
                        raise UsageError(_foreign(self.path, number, torn=not whole))
                    yield key_of(head.id), head.status
                self._torn = not whole
                start += len(line)

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines, and return when they are on disk. Blocking. Raises `FerruleError`, with some of them written
        perhaps."""
        try:
            self._check()
            left = memoryview(b"".join([b"\n" if self._torn else b"", *lines]))
            while left:
                left = left[os.write(self.descriptor, left) :]
            self._torn = False
            os.fsync(self.descriptor)
        except OSError as error:
            advice = "; free some space" if error.errno in NO_SPACE else ""
            raise FerruleError(f"{self.path} cannot be written: {error.strerror}{advice}") from error

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that are there."""
        with Path(self.path).open("rb") as file:
            yield from filter(bytes.strip, file)

    def close(self) -> None:
        """Close the file. The lock ends when no worker has it any more."""
        os.close(self.descriptor)

    def _check(self) -> None:
        """Raise `FerruleError` if another file is at the path by now: what is written would be lost."""
        ours = os.fstat(self.descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            raise FerruleError(f"{self.path} was moved, replaced or deleted while the batch ran")


def _head(line: bytes) -> _Head | None:
    try:
        return msgspec.json.decode(line, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _foreign(path: Path, number: int, *, torn: bool) -> str:
    what = "was not written to its end" if torn else "is no result of a batch"
    remedy = "remove that line" if torn else "name another file"
    return f"--out: line {number} of {path} {what}; {remedy}"


def unfinished(results: Iterable[tuple[str, bytes]], start: bytes) -> bool:
    """Return whether a text is the beginning of one of these results."""
    return any(result.startswith(start) for _, result in results)
