"""The processes that read pages and PDFs as text."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from ferrule.process.environment import CORE_VARIABLES
from ferrule.process.kernel import Kernel, KernelLost
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import uninterrupted
from ferrule.protocol.errors import FerruleError

MOST_AT_ONCE = 3
"""Pages that are read at once: more share the processors."""
READ_S = 15.0
"""A large page takes a second, a PDF of hundreds of pages ten."""
IDLE_S = 60.0
"""Seconds after which a process without work ends: it holds 80 MB, and starts in one."""
MISSING = (
    "Pages cannot be read as text here: the extra `search` is missing. The operator can install it: "
    "pip install 'ferrule[search]'"
)
_SCRIPT = Path(__file__).with_name("page_text.py")


class Unreadable(FerruleError):
    """What was sent cannot be read as text: one sentence for the model."""


class Extracted(msgspec.Struct, frozen=True):
    """A page's title and text."""

    title: str = ""
    text: str = ""
    missing: str | None = None


class Extractor:
    """Reads pages in processes that are kept for the next one."""

    def __init__(self, seconds: float = READ_S) -> None:
        self._ms = int(seconds * 1000)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._idle: list[Kernel] = []
        self._ending: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, kind: str, url: str, data: bytes) -> Extracted:
        """Read a page (`html`, as UTF-8) or a `pdf`. Raises `Unreadable`."""
        asked = msgspec.json.encode({"kind": kind, "url": url, "data": data}).decode()  # bytes are written in base64
        async with self._turns:
            self._keep_alive()
            kernel = self._idle.pop() if self._idle else await self._start()
            try:
                result = await kernel.run(asked, self._ms)
            except KernelLost as error:
                raise Unreadable(
                    f"The {kind.upper()} at {url} could not be read: it takes too much to parse."
                ) from error
            finally:
                if not kernel.lost:
                    self._idle.append(kernel)
                self._end_later()
        if not result.ok:
            raise Unreadable(f"The {kind.upper()} at {url} is damaged: {result.error}.")
        found = msgspec.json.decode(result.output, type=Extracted)
        if found.missing is not None:
            raise Unreadable(MISSING)
        return found

    async def _start(self) -> Kernel:
        env = {name: os.environ[name] for name in CORE_VARIABLES if name in os.environ}
        try:
            return await Kernel.start(PlainLauncher(), (sys.executable, "-I", str(_SCRIPT)), env, os.sep)
        except LaunchError as error:
            raise Unreadable("Pages cannot be read here: the process that does it cannot be started.") from error

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

    async def aclose(self) -> None:
        """End the processes."""
        self._keep_alive()
        await uninterrupted(self._kill_all())
