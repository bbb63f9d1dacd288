"""Servers in this process, at the other end of two pipes."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ferrule.config import Configuration, Layer, Sources, load
from ferrule.doors.app_server.connection import Connection
from ferrule.doors.app_server.methods import METHODS
from ferrule.doors.app_server.openings import Configure
from ferrule.doors.app_server.pipes import serve_lines
from ferrule.stdio import Outbox
from ferrule.tools.tasks import run_blocking
from tests.app_server.client import Client
from tests.raw_client import write_if_open

LIMIT = 1 << 26
"""Bytes of a message of the server."""

ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it must"}
"""What lets a command need approval."""


def configure_in(folder: Path, base_url: str) -> Configure:
    """The configuration of a server with a home in `folder`, which works in its folder `work`."""
    work, home = folder / "work", folder / "home"
    work.mkdir(exist_ok=True)
    env = {"FERRULE_HOME": str(home), "HOME": str(folder)}
    flags = Layer("flags", {"model": "gpt-5.5", "sandbox_workspace_write": {"exclude_slash_tmp": True}})

    def configure(cwd: str | None, keys: Mapping[str, object]) -> Configuration:
        sources = Sources(
            cwd=cwd or os.path.realpath(work), flags=(flags, Layer("the client", dict(keys))), base_url=base_url,
            wire="responses",
        )  # fmt: skip
        return load(sources, env)

    return configure


class Pipes(Client):
    """A client at the other end of two pipes."""

    def __init__(self, into: int, answers: asyncio.StreamReader) -> None:
        super().__init__(self._write, answers.readline)
        self._into = into

    async def _write(self, data: bytes) -> None:
        await run_blocking(write_if_open, self._into, data)

    def hang_up(self) -> None:
        """End the server's input."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1


@asynccontextmanager
async def piped(configure: Configure, *, greets: bool = True) -> AsyncIterator[Pipes]:
    """A server and its client."""
    source, into = os.pipe()
    out_of, sink = os.pipe()
    answers = asyncio.StreamReader(LIMIT)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(answers), os.fdopen(out_of, "rb")
    )
    client = Pipes(into, answers)
    serving = asyncio.create_task(serve_lines(Connection(METHODS, configure, Outbox()), source, sink))
    try:
        if greets:
            await client.greet()
        yield client
    finally:
        client.hang_up()
        async with asyncio.timeout(20):
            await serving
        transport.close()
        os.close(source)
        os.close(sink)


def thread_of(answer: Mapping[str, Any]) -> str:
    """The id of the thread in an answer."""
    return str(answer["thread"]["id"])
