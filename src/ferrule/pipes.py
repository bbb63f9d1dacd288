"""Lines of a client at the other end of two descriptors, and what it is sent: what doors over standard input and output
share."""

import asyncio
import os
import select
from collections.abc import AsyncIterator

from ferrule.mcp.lines import LineSplitter
from ferrule.stdio import Outbox, write_all, write_ready
from ferrule.tools.tasks import run_blocking

CHUNK = 64 * 1024
"""Bytes read at once: what a pipe holds."""
LOOK_S = 1.0
"""Seconds between two looks whether a client that reads nothing is gone."""


async def lines_of(source: int, outbox: Outbox) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield the lines of a client until the end of its input, and whether each is whole: of an overlong one there are
    both ends. What a client writes that does not read what it is sent waits in its own pipe."""
    splitter = LineSplitter()
    while data := await _some(source):
        for line, whole in splitter.feed(data):
            if not await _has_room(outbox, source):
                return
            yield line, whole
    for line, whole in splitter.feed(b"\n"):
        yield line, whole


async def send_waiting(outbox: Outbox, sink: int) -> None:
    """Write what waits for a client, until cancelled; give the client up if nobody reads it any more."""
    while not outbox.lost.is_set():
        messages = await outbox.take()
        try:
            if rest := write_ready(sink, b"".join(messages)):
                await run_blocking(write_all, sink, rest)
        except OSError:
            outbox.lose()
            return
        outbox.taken(messages)


async def _some(source: int) -> bytes:
    try:
        return await run_blocking(os.read, source, CHUNK)
    except OSError:
        return b""  # a terminal that is gone: an end as any other


async def _has_room(outbox: Outbox, source: int) -> bool:
    """Wait until the client has read enough; return False if it is gone."""
    while True:
        try:
            async with asyncio.timeout(LOOK_S):
                await outbox.room()
                return not outbox.lost.is_set()
        except TimeoutError:
            if _hung_up(source):
                return False


def _hung_up(source: int) -> bool:
    poll = select.poll()
    poll.register(source, 0)
    return any(happened & (select.POLLHUP | select.POLLERR) for _, happened in poll.poll(0))
