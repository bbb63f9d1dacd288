"""The processes that read pages and files as text."""

import asyncio
import base64
import importlib.util
import os
import sys
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Protocol

import msgspec

from ferrule.process.environment import CORE_VARIABLES
from ferrule.process.kernel import CellTimedOut, Kernel, KernelLost
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import FerruleError
from ferrule.sync import uninterrupted

MOST_AT_ONCE = 3
"""Documents that are read at once: more share the processors."""
READ_S = 15.0
"""A large page takes a second, a PDF of hundreds of pages ten."""
FILE_S = 120.0
"""A PDF of some thousand pages."""
IDLE_S = 60.0
"""Seconds after which a process without work ends: it holds 80 MB, and starts in one."""
PIECE = 3 << 20
"""Bytes of a file that are handed over at a time. A multiple of 3, as base64 has it."""
MAX_FILE = 256 << 20
"""Bytes of a file that is read: a process has 1 GB for it and for what it makes of it."""
MISSING = (
    "{} cannot be read as text here: the extra `search` is missing. The operator can install it: "
    "pip install 'ferrule[search]'"
)
TOO_MUCH = "The file takes too much memory to parse."
NOT_STARTED = "Files cannot be read on this server: their parser does not start."
MODULES = ("pypdf", "trafilatura", "lxml")
"""What parsers are made of: found in the folders of packages."""
PARSING = Path(__file__).with_name("parsing")
START = "import sys; sys.path[:0] = sys.argv[1:]; from parsing.answers import main; main()"


class Unreadable(FerruleError):
    """What was sent cannot be read as text: one sentence for the model, or for the client that sent it. `code` is that
    of the Responses API for a file."""

    def __init__(self, message: str, code: str = "invalid_file") -> None:
        super().__init__(message)
        self.code = code


class Extracted(msgspec.Struct, frozen=True):
    """A page's title and text."""

    title: str = ""
    text: str = ""
    missing: str | None = None
    refused: str | None = None
    code: str = ""


class Place(Protocol):
    """Where the processes run. Whoever opened it closes it, after those that use it."""

    async def start(self) -> Kernel:
        """Start one. Raises `LaunchError`."""
        ...


class PlainPlace:
    """This machine, with no more confinement than limits on memory, time and files."""

    async def start(self) -> Kernel:
        """Start one. Raises `LaunchError`."""
        env = {name: os.environ[name] for name in CORE_VARIABLES if name in os.environ}
        return await Kernel.start(PlainLauncher(), command(sys.executable, PARSING.parent, *folders()), env, os.sep)


def command(python: str, *paths: str | Path) -> list[str]:
    """Return how a process is started; `paths` are the folder of `parsing`, and those with packages."""
    return [python, "-I", "-S", "-c", START, *(str(path) for path in paths)]


def folders() -> list[str]:
    """Return the folders with the packages of the parsers, but for those that any Python looks into itself."""
    found = (importlib.util.find_spec(name) for name in MODULES)
    return list(dict.fromkeys(str(Path(one.origin).parents[1]) for one in found if one and one.origin))


class Extractor:
    """Reads documents in processes that are kept for the next one. Belongs to one event loop."""

    def __init__(self, place: Place | None = None, seconds: float = READ_S, file_seconds: float = FILE_S) -> None:
        self._place = place or PlainPlace()
        self._seconds = seconds
        self._file_seconds = file_seconds
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._idle: list[Kernel] = []
        self._ending: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, kind: str, url: str, data: bytes) -> Extracted:
        """Read a page (`html`, as UTF-8) or a `pdf`. Raises `Unreadable`."""
        shown = kind.upper()
        try:
            found = await self._extracted(_once(data), kind, url, self._seconds)
        except KernelLost as error:
            raise Unreadable(f"The {shown} at {url} could not be read: it takes too much to parse.") from error
        except _Damaged as error:
            raise Unreadable(f"The {shown} at {url} is damaged: {error}.") from error
        except LaunchError as error:
            raise Unreadable("Pages cannot be read here: the process that does it cannot be started.") from error
        if found.refused is not None:
            raise Unreadable(f"{url}: {found.refused}", found.code)
        if found.missing is not None:
            raise Unreadable(MISSING.format("Pages"))
        return found

    async def read_file(self, name: str, size: int, blocks: AsyncIterable[bytes]) -> str:
        """Read a file of `size` bytes as text; its name tells its kind where nothing else does. Raises `Unreadable`
        with a sentence for whoever sent it, and whatever `blocks` raises."""
        if size > MAX_FILE:
            raise Unreadable(f"The file has more than {MAX_FILE >> 20} MB, so it is not read: split it.")
        try:
            found = await self._extracted(blocks, "file", name, self._file_seconds)
        except CellTimedOut as error:
            raise Unreadable(f"The file takes more than {self._file_seconds:g} seconds to parse.") from error
        except KernelLost as error:
            raise Unreadable(TOO_MUCH) from error
        except _Damaged as error:
            too_much = str(error) == MemoryError.__name__
            raise Unreadable(TOO_MUCH if too_much else "The file is damaged.") from error
        except LaunchError as error:
            raise Unreadable(NOT_STARTED, "server_error") from error
        if found.missing is not None:
            raise Unreadable(MISSING.format("PDFs"), "server_error")
        if found.refused is not None:
            raise Unreadable(found.refused, found.code)
        return found.text

    async def aclose(self) -> None:
        """End the processes."""
        self._keep_alive()
        await uninterrupted(self._kill_all())

    async def _extracted(self, blocks: AsyncIterable[bytes], kind: str, name: str, seconds: float) -> Extracted:
        """Hand a document over and return what is in it. Raises `KernelLost`, `_Damaged` and `LaunchError`."""
        async with self._turns:
            self._keep_alive()
            kernel = await self._free()
            try:
                output = await _answer(kernel, blocks, kind, name, seconds)
            except _Damaged:
                self._idle.append(kernel)
                raise
            except BaseException:
                if not kernel.lost:  # it holds half a document
                    await uninterrupted(kernel.kill())
                raise
            else:
                self._idle.append(kernel)
            finally:
                self._end_later()
        return msgspec.json.decode(output, type=Extracted)

    async def _free(self) -> Kernel:
        """Return a process that waits and lives still, or a new one. Raises `LaunchError`."""
        while self._idle:
            kernel = self._idle.pop()
            try:
                await kernel.run("", int(self._seconds * 1000))
            except KernelLost:  # it was ended while nobody asked it, and says nothing about this document
                continue
            except BaseException:
                await uninterrupted(kernel.kill())
                raise
            return kernel
        return await self._place.start()

    def _keep_alive(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _end_later(self) -> None:
        self._keep_alive()
        self._ending = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        task = asyncio.get_running_loop().create_task(self._kill_all())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _kill_all(self) -> None:
        while self._idle:
            await self._idle.pop().kill()


class _Damaged(FerruleError):
    """A parser gave up; the text is the name of what it raised."""


async def _answer(kernel: Kernel, blocks: AsyncIterable[bytes], kind: str, name: str, seconds: float) -> str:
    async for block in blocks:
        for start in range(0, len(block), PIECE):
            data = base64.b64encode(block[start : start + PIECE]).decode()
            await _told(kernel, {"more": data}, seconds)
    return await _told(kernel, {"kind": kind, "name": name}, seconds)


async def _told(kernel: Kernel, asked: dict[str, str], seconds: float) -> str:
    result = await kernel.run(msgspec.json.encode(asked).decode(), int(seconds * 1000))
    if not result.ok:
        raise _Damaged(result.error or "")
    return result.output


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
