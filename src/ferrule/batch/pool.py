"""The workers of a batch: who they are, what they say, and how they ended. Here they are processes of this machine."""

import asyncio
import os
import pickle
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import BinaryIO, Protocol, TypeVar

import msgspec

from ferrule.batch.messages import Channel, Message, Setup, Stop
from ferrule.protocol.errors import FerruleError

T = TypeVar("T")

ENDING_SECONDS = 15.0
"""How long a worker may take that was told to end: it ends the commands of its tasks, and removes their workspaces."""
SHOWN_BYTES = 2000
SHOWN_LINES = 3
"""Lines shown of what a worker wrote last."""


class Said(msgspec.Struct, frozen=True):
    """A worker said something."""

    worker: int
    message: Message


class Left(msgspec.Struct, frozen=True):
    """A worker has ended; `how` goes on behind "it"."""

    worker: int
    how: str


class Woken(msgspec.Struct, frozen=True):
    """The driver has to look around: no worker is concerned."""


Event = Said | Left | Woken


class WorkerPool(Protocol):
    """Workers by their numbers, wherever they are."""

    events: "asyncio.Queue[Event]"

    @property
    def processors(self) -> int:
        """How many there are for the workers."""
        ...

    async def start(self, slots: int) -> int:
        """Start a worker with so many slots; return its number."""
        ...

    def send(self, worker: int, message: Message) -> None:
        """Tell a worker something, unless it has ended."""
        ...

    async def close(self) -> None:
        """End all workers. What they said until then stands in `events`."""
        ...


class _Worker(msgspec.Struct):
    process: asyncio.subprocess.Process
    channel: Channel
    log: BinaryIO
    listening: "asyncio.Task[None]"


class LocalPool:
    """Workers as processes. They end with this one, and hold the descriptors `kept` open until they have."""

    def __init__(self, setup: Setup, *kept: int) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self._setup = setup
        self._kept = kept
        self._numbers: Iterator[int] = count(1)
        self._workers: dict[int, _Worker] = {}

    @property
    def processors(self) -> int:
        """See `WorkerPool.processors`."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    async def start(self, slots: int) -> int:
        """See `WorkerPool.start`. Raises `FerruleError`."""
        number, log = next(self._numbers), tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has ended
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                process = await self._process(log, (theirs.fileno(), *self._kept))
        except OSError as error:
            raise FerruleError(f"no worker can be started: {error.strerror}") from error
        channel = Channel(*await asyncio.open_connection(sock=ours))
        channel.send_bytes(pickle.dumps(msgspec.structs.replace(self._setup, slots=slots)))
        self._workers[number] = _Worker(process, channel, log, asyncio.create_task(self._listen(number, channel)))
        return number

    async def _process(self, log: BinaryIO, descriptors: tuple[int, ...]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the working directory holds no modules of ours
            "-m",
            "ferrule.batch.worker",
            *map(str, descriptors),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C is for this process, which ends them
        )

    def send(self, worker: int, message: Message) -> None:
        """See `WorkerPool.send`."""
        if worker in self._workers:
            self._workers[worker].channel.send(message)

    async def close(self) -> None:
        """See `WorkerPool.close`. The processes are waited for even where a loop that ends has cancelled who listens to
        them."""
        workers = list(self._workers.values())
        if not workers:
            return
        for worker in workers:
            worker.channel.send(Stop())
        ends = {asyncio.ensure_future(worker.process.wait()): worker for worker in workers}
        _, late = await asyncio.wait(ends, timeout=ENDING_SECONDS)
        for end in late:
            _kill(ends[end].process)
        await asyncio.wait([*ends, *(worker.listening for worker in workers)])

    async def _listen(self, number: int, channel: Channel) -> None:
        """Pass on what a worker says, and then how it has ended."""
        while (message := await channel.receive()) is not None:
            self.events.put_nowait(Said(number, message))
        worker = self._workers[number]
        try:
            code = await asyncio.wait_for(worker.process.wait(), ENDING_SECONDS)
        except TimeoutError:  # it closed its end, and goes on
            _kill(worker.process)
            code = await worker.process.wait()
        channel.close()
        del self._workers[number]
        with worker.log as log:
            self.events.put_nowait(Left(number, _how(code, _end_of(log))))


def waiting(queue: "asyncio.Queue[T]") -> list[T]:
    """Take what waits in a queue."""
    return [queue.get_nowait() for _ in range(queue.qsize())]


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_of(log: BinaryIO) -> str:
    """Return the last lines that a worker wrote, in one."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - SHOWN_BYTES))
    return " / ".join(log.read().decode("utf-8", "replace").strip().splitlines()[-SHOWN_LINES:])


def _how(code: int, said: str) -> str:
    """Say how a worker ended."""
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += ", as the system does when memory is short"
    return f"{how}: {said}" if said else how
