"""What the driver and its workers say to each other, over a stream of bytes."""

import asyncio
import struct

import msgspec

from ferrule.batch.results import Status, Verdict
from ferrule.protocol.settings import Settings

_SIZE = struct.Struct(">Q")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told when it starts. `rollouts` is where it writes the tasks' files, `scratch` where their
    workspaces are made; `kept_rollouts` is where those files are when the batch has ended, None: nowhere. With
    `sends_rollouts` they come with the results, and the worker removes its own. `images`: some tasks have one."""

    settings: Settings
    api_key: str | None
    slots: int
    scratch: str
    rollouts: str
    kept_rollouts: str | None
    sends_rollouts: bool = False
    images: bool


class Job(msgspec.Struct, frozen=True, tag=True):
    """To a worker: do this task; it is tried for the `tries`-th time."""

    key: str
    task: bytes
    tries: int


class Hold(msgspec.Struct, frozen=True, tag=True):
    """Either way: the model's server asks to wait so many seconds."""

    seconds: float


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To a worker: end, without a result of what still runs."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """From a worker: it has started. `notice`: why its workspaces are copies; "" if they are layers."""

    notice: str = ""


class Done(msgspec.Struct, frozen=True, tag=True):
    """From a worker: a task's line of the results, and what is shown of it. `unreachable`: no server answered.
    `record` is its rollout, from a worker that sends them."""

    key: str
    line: bytes
    status: Status
    verdict: Verdict | None = None
    unreachable: bool = False
    record: bytes | None = None


class Unable(msgspec.Struct, frozen=True, tag=True):
    """From a worker: no task can be done here, and why."""

    why: str


Message = Job | Hold | Stop | Ready | Done | Unable

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Channel:
    """One end of the talk."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: Message) -> None:
        """Send a message, unless nobody is there any more."""
        self.send_bytes(_encode(message))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as `receive_bytes` reads them."""
        if not self._writer.is_closing():
            self._writer.writelines([_SIZE.pack(len(data)), data])

    async def receive(self) -> Message | None:
        """Return the next message; None if the other end is gone."""
        data = await self.receive_bytes()
        return None if data is None else _decode(data)

    async def receive_bytes(self) -> bytes | None:
        """Return what `send_bytes` sent; None if the other end is gone."""
        try:
            (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def flush(self) -> None:
        """Wait until what was sent has gone."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
