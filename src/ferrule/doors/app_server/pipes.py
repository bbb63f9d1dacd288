"""Serve the client at the other end of standard input and output."""

import asyncio

from ferrule.doors.app_server.connection import Connection
from ferrule.pipes import lines_of, send_waiting
from ferrule.tools.tasks import end_tasks

GRACE_S = 1.0
"""Seconds after the end of the input in which requests that are being served still get their answers: scripts write
their requests and close. Turns that run are ended."""
FLUSH_S = 0.5
"""Seconds for the last messages to be taken."""


async def serve_lines(client: Connection, source: int, sink: int) -> None:
    """Serve until the client closes the descriptor `source`, or reads no more of what we write to `sink`; then end what
    runs for it."""
    writing = asyncio.create_task(send_waiting(client.outbox, sink))
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
    """Take lines until the end of the input."""
    async for line, whole in lines_of(source, client.outbox):
        client.take(line, whole=whole)
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(GRACE_S):
            await client.settled()
    except TimeoutError:
        pass  # what is still served is ended with the client
