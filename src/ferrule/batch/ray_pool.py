"""Workers on a Ray cluster, each in an actor that takes a processor. What they have done comes back through Ray."""

import asyncio
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ferrule.batch.messages import Done, Message, Setup, Unable
from ferrule.batch.pool import ENDING_SECONDS, Event, Left, Said
from ferrule.batch.relay import Relay
from ferrule.batch.trace import rollout_name
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import secret_variables
from ferrule.tools.tasks import end_tasks

MISSING = "--ray needs the extra `ray`: pip install 'ferrule[ray]'"
LOCAL = "local"
"""The address of a cluster of this machine, for one batch."""
REACHING_SECONDS = 10.0
"""For the cluster's head to take a connection: a network that is alive does within a second."""
STARTS = 3
"""How often a local cluster is started: Ray gives up after 30 s, which a machine at its limits may take."""
STORE_BYTES = 128 * 2**20
"""Of a local cluster's object store: what workers say does not go through it unless it is large."""
_FILE_MODE = 0o600
_TOLD_LENGTH = 300
"""Characters shown of an error of Ray's, which may be a page."""


class RayPool:
    """Workers by their numbers, on a cluster. Made by `open`."""

    def __init__(self, setup: Setup, ray: Any) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._ray = ray
        self._actor = ray.remote(Relay).options(num_cpus=1, max_restarts=0)
        self._given = (setup, _variables(setup))
        self._rollouts = None if setup.kept_rollouts is None else Path(setup.kept_rollouts)
        self._numbers: Iterator[int] = count(1)
        self._actors: dict[int, Any] = {}
        self._started: set[int] = set()
        self._listening: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, setup: Setup, address: str) -> AsyncIterator["RayPool"]:
        """Connect to the cluster at `address`: `local`, `auto`, HOST:PORT or `ray://HOST:PORT`. Raises `UsageError`."""
        loop, ends, over = asyncio.get_running_loop(), ExitStack(), threading.Event()
        with ThreadPoolExecutor(1, "ray") as thread:  # a local cluster ends with the thread that has started it
            try:
                yield cls(setup, await loop.run_in_executor(thread, _connected, address, ends.callback, over.is_set))
            finally:
                over.set()
                await loop.run_in_executor(thread, ends.close)

    async def start(self, slots: int) -> int:
        """See `WorkerPool.start`. It starts once the cluster has a processor for it."""
        number = next(self._numbers)
        self._actors[number] = self._actor.remote(*self._given)
        listening = asyncio.create_task(self._listen(number, slots))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return number

    def send(self, worker: int, message: Message) -> None:
        """See `WorkerPool.send`."""
        if worker in self._actors:
            self._actors[worker].tell.remote(message)

    async def close(self) -> None:
        """See `WorkerPool.close`."""
        for number, actor in self._actors.items():
            if number in self._started:
                actor.close.remote()
            else:
                self._ray.kill(actor)
        if self._listening:
            _, late = await asyncio.wait(self._listening, timeout=2 * ENDING_SECONDS)
            await end_tasks(late)

    async def _listen(self, number: int, slots: int) -> None:
        """Pass on what a worker says, and then how it has ended."""
        actor = self._actors[number]
        try:
            await actor.start.remote(slots)
            self._started.add(number)
            left = None
            while left is None:
                for event in await actor.heard.remote():
                    if isinstance(event, Left):
                        left = event
                    else:
                        await self._pass_on(number, event)
            await actor.close.remote()
            self.events.put_nowait(msgspec.structs.replace(left, worker=number))
        except self._ray.exceptions.RayError as error:
            self.events.put_nowait(Left(number, f"was lost: {_told(error)}"))
        finally:
            del self._actors[number]
            self._ray.kill(actor)

    async def _pass_on(self, number: int, event: Event) -> None:
        if not isinstance(event, Said):
            return
        message = event.message
        if isinstance(message, Done) and message.record is not None and self._rollouts is not None:
            try:
                await asyncio.to_thread(_store, self._rollouts, rollout_name(message.key), message.record)
                message = msgspec.structs.replace(message, record=None)
            except OSError as error:
                message = Unable(f"{self._rollouts} cannot be written: {error.strerror}")
        self.events.put_nowait(Said(number, message))


def _store(folder: Path, name: str, record: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.path.join(folder, name), "wb", opener=lambda path, flags: os.open(path, flags, _FILE_MODE)) as file:
        file.write(record)


def _variables(setup: Setup) -> Mapping[str, str]:
    """Return the variables of this process's environment that hold what the model's server asks for."""
    provider = setup.settings.provider
    names = secret_variables([] if provider is None else [provider], (), "OPENAI_API_KEY")
    return {name: os.environ[name] for name in names if name in os.environ}


def _connected(address: str, at_end: Callable[..., object], is_left: Callable[[], bool]) -> Any:
    """Connect to a cluster; return the module `ray`. What undoes it is given to `at_end`. Once `is_left`, nobody waits
    for it any more. Blocking."""
    _reach(address)
    try:
        import ray
    except ImportError as error:
        raise UsageError(MISSING) from error
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"address": address}
    if address == LOCAL:
        folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets need a short path
        at_end(shutil.rmtree, folder, ignore_errors=True)
        options |= {"_temp_dir": folder, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    at_end(_set_environment(address))
    at_end(ray.shutdown)
    logging.getLogger("ray").setLevel(logging.ERROR)
    for left in reversed(range(STARTS if address == LOCAL else 1)):
        try:
            ray.init(log_to_driver=False, configure_logging=False, logging_level=logging.ERROR, **options)
        except Exception as error:
            if not left or is_left():
                raise UsageError(f"--ray {address}: {_told(error)}") from error
            ray.shutdown()
        else:
            break
    return ray


def _reach(address: str) -> None:
    """Raise `UsageError` if nobody is there: Ray would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon:
        if address not in (LOCAL, "auto"):
            raise UsageError(f"--ray {address}: it is local, auto, HOST:PORT or ray://HOST:PORT")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACHING_SECONDS).close()
    except ValueError as error:
        raise UsageError(f"--ray {address}: {port!r} is no port") from error
    except OSError as error:
        raise UsageError(f"--ray {address}: no cluster answers there ({error.strerror or error})") from error


def _set_environment(address: str) -> Callable[[], None]:
    """Let Ray send no statistics, and write no token for a cluster of our own into the user's home. Return what undoes
    it: Ray reads the token as long as it is connected."""
    ours = {"RAY_USAGE_STATS_ENABLED": "0"}
    if address == LOCAL and not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        ours["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)

    def undo() -> None:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value

    return undo


def _told(error: BaseException) -> str:
    """Return the last line that an error of Ray's says: the cause, below the trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:_TOLD_LENGTH]
