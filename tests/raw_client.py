"""The client's ends of two pipes: it writes what it likes, line by line, as JSON-RPC or not."""

import asyncio
import contextlib
import json
import os
from typing import Any

from ferrule.stdio import write_all
from ferrule.tools.tasks import run_blocking


class RawClient:
    """Writes to a server, and reads what it says."""

    def __init__(self, into: int, out_of: int) -> None:
        self._into = into
        self._out_of = out_of
        self._lines = b""
        self._id = 0
        self.serving: asyncio.Task[None] | None = None

    async def send(self, line: bytes) -> None:
        """Write bytes as they are; a thread, since a pipe may be full."""
        await run_blocking(write_if_open, self._into, line)

    async def say(self, **message: Any) -> None:
        await self.send(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> int:
        """Send a request; return its id."""
        self._id += 1
        await self.say(id=self._id, method=method, params=params)
        return self._id

    async def hear(self) -> dict[str, Any]:
        """The next message of the server."""
        while b"\n" not in self._lines:
            data = await run_blocking(os.read, self._out_of, 1 << 16)
            assert data, "the server has closed its output"
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def answer(self, request_id: object) -> dict[str, Any]:
        """The answer to a request, past whatever else is said."""
        while True:
            heard = await self.hear()
            if "method" not in heard and heard.get("id") == request_id:
                return heard

    def hang_up(self) -> None:
        """End the server's input."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1

    def stop_listening(self) -> None:
        if self._out_of >= 0:
            os.close(self._out_of)
            self._out_of = -1


def write_if_open(descriptor: int, data: bytes) -> None:
    """Write all of it, if somebody reads it."""
    with contextlib.suppress(BrokenPipeError):
        write_all(descriptor, data)
