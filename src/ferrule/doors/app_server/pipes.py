"""Serve the client at the other end of standard input and output."""

import asyncio
import os
import select

from ferrule.doors.app_server.connection import Connection
from ferrule.mcp.lines import LineSplitter
from ferrule.stdio import write_all
from ferrule.tools.tasks import end_tasks, run_blocking

CHUNK = 64 * 1024
"""Bytes read at once: what a pipe holds."""
GRACE_S = 1.0
"""Seconds after the end of the input in which requests that are being served still get their answers: scripts write
their requests and close. Turns that run are ended."""
FLUSH_S = 0.5
"""Seconds for the last messages to be taken."""
LOOK_S = 1.0
"""Seconds between two looks whether a client that reads nothing is gone."""


async def serve_lines(client: Connection, source: int, sink: int) -> None:
    """Serve until the client closes the descriptor `source`, or reads no more of what we write to `sink`; then end what
    runs for it."""
    writing = asyncio.create_task(_write(client, sink))
    reading = asyncio.create_task(_read(client, source))
    lost = asyncio.create_task(client.outbox.lost.wait())
    try:
        await asyncio.wait([reading, lost], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks([reading, lost])
        await client.aclose()
        try:
            async with asyncio.timeout(FLUSH_S):
                await client.outbox.flushed()
        except TimeoutError:
            pass  # it reads no more
        await end_tasks([writing])
    if not reading.cancelled():
        reading.result()


async def _read(client: Connection, source: int) -> None:
    """Take lines until the end of the input. What a client writes that does not read waits in its own pipe."""
    lines = LineSplitter()
    while data := await _some(source):
        for line, whole in lines.feed(data):
            if not await _has_room(client, source):
                return
            client.take(line, whole=whole)
            await asyncio.sleep(0)
    for line, whole in lines.feed(b"\n"):
        client.take(line, whole=whole)
    try:
        async with asyncio.timeout(GRACE_S):
            await client.settled()
    except TimeoutError:
        pass  # what is still served is ended with the client


async def _some(source: int) -> bytes:
    try:
        return await run_blocking(os.read, source, CHUNK)
    except OSError:
        return b""  # a terminal that is gone: an end as any other


async def _has_room(client: Connection, source: int) -> bool:
    """Wait until the client has read enough; return False if it is gone."""
    while True:
        try:
            async with asyncio.timeout(LOOK_S):
                await client.outbox.room()
                return not client.outbox.lost.is_set()
        except TimeoutError:
            if _hung_up(source):
                return False


def _hung_up(source: int) -> bool:
    poll = select.poll()
    poll.register(source, 0)
    return any(happened & (select.POLLHUP | select.POLLERR) for _, happened in poll.poll(0))


async def _write(client: Connection, sink: int) -> None:
    """Write messages; give the client up if nobody reads them any more."""
    while True:
        messages = await client.outbox.take()
        try:
            await run_blocking(write_all, sink, b"".join(messages))
        except OSError:
            client.outbox.lose()
            return
        client.outbox.taken(messages)
