import asyncio
import os

import pytest

from ferrule.process import streams
from ferrule.process.streams import Reader, Writer


async def test_what_was_written_before_the_exit_is_read_when_the_grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "READ_BYTES", 100)
    monkeypatch.setattr(streams, "READS_PER_WAKEUP", 1)
    reading, writing = os.pipe()
    pieces: list[bytes] = []
    reader = Reader(reading, pieces.append)
    os.write(writing, b"x" * 50_000)
    await reader.finish(0)
    assert sum(map(len, pieces)) == 50_000 and not reader.reached_end
    os.close(writing)


async def test_writing_goes_on_in_the_background_and_then_closes() -> None:
    reading, writing = os.pipe()
    writer = Writer(writing)
    writer.write(b"x" * 200_000)
    writer.write(b"y" * 200_000)
    writer.finish()
    assert writer.unsent > 0
    pieces: list[bytes] = []
    await Reader(reading, pieces.append).finish(10)
    assert b"".join(pieces) == b"x" * 200_000 + b"y" * 200_000
    assert writer.unsent == 0 and not writer.broken


async def test_who_drains_waits_for_the_reader() -> None:
    reading, writing = os.pipe()
    writer = Writer(writing)
    await writer.drain()
    writer.write(b"x" * 200_000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writer.drain(), 0.01)
    pieces: list[bytes] = []
    reader = Reader(reading, pieces.append)
    await asyncio.wait_for(writer.drain(), 10)
    assert writer.unsent == 0
    writer.write(b"y" * 200_000)
    reader.close()
    await asyncio.wait_for(writer.drain(), 10)
    assert writer.broken


async def test_nobody_reads() -> None:
    reading, writing = os.pipe()
    writer = Writer(writing)
    os.close(reading)
    writer.write(b"x")
    assert writer.broken
    writer.write(b"x")
    writer.finish()
    writer.close()
