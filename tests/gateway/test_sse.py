"""How events go over the wire, below HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from starlette.types import Message

from ferrule.doors.gateway import sse
from ferrule.doors.gateway.sse import DONE, KEEP_ALIVE, WRITE_BYTES, EventStream, frame, writes
from ferrule.responses.ledger import Batch

EVENT = b'{"type":"response.output_text.delta","delta":"a \\"quoted\\" word"}'


def test_an_event_is_named_by_its_type() -> None:
    assert frame(EVENT) == b"event: response.output_text.delta\ndata: " + EVENT + b"\n\n"


def test_what_is_ready_is_written_at_once_but_never_too_much() -> None:
    assert list(writes(Batch([EVENT] * 100, is_last=False))) == [(frame(EVENT) * 100, True)]
    assert list(writes(Batch([EVENT] * 100, is_last=True))) == [(frame(EVENT) * 100 + DONE, False)]
    assert list(writes(Batch([], is_last=True))) == [(DONE, False)]
    pieces, more = zip(*writes(Batch([EVENT] * 10_000, is_last=True)), strict=True)
    assert b"".join(pieces) == frame(EVENT) * 10_000 + DONE
    assert max(map(len, pieces)) < WRITE_BYTES + len(frame(EVENT)) + len(DONE)
    assert more == (True,) * (len(pieces) - 1) + (False,)


class Client:
    """The ASGI side of a client: takes what is sent unless it is `slow`, and leaves when it is told to."""

    def __init__(self, *, slow: bool = False) -> None:
        self.taken: list[bytes] = []
        self.leaves = asyncio.Event()
        self.news = asyncio.Event()
        self.left = 0
        self._takes = asyncio.Event()
        if not slow:
            self._takes.set()

    async def receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            await self._takes.wait()
            self.taken.append(message["body"])
            self.news.set()

    async def leave(self) -> None:
        self.left += 1

    async def until(self, piece: bytes, count: int) -> None:
        while self.taken.count(piece) < count:
            self.news.clear()
            await self.news.wait()

    def takes(self, batches: AsyncIterator[Batch]) -> "asyncio.Task[None]":
        stream = EventStream(batches, {}, self.leave)
        scope: dict[str, Any] = {"type": "http"}
        return asyncio.create_task(stream(scope, self.receive, self.send))


async def some(*batches: Sequence[bytes], then: asyncio.Event | None = None) -> AsyncIterator[Batch]:
    for batch in batches:
        yield Batch(batch, is_last=False)
    if then is not None:
        await then.wait()
    yield Batch([], is_last=True)


async def test_a_stream_ends_with_done_and_is_left_once() -> None:
    client = Client()
    await client.takes(some([EVENT], [EVENT, EVENT]))
    assert b"".join(client.taken) == frame(EVENT) * 3 + DONE and client.left == 1


async def test_silence_is_broken_and_only_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.01)
    client, ends = Client(), asyncio.Event()
    taking = client.takes(some([EVENT], then=ends))
    await client.until(KEEP_ALIVE, 3)
    ends.set()
    await taking
    assert client.taken[0] == frame(EVENT) and client.taken[-1] == DONE


async def test_a_client_that_leaves_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 1000.0)
    client, never = Client(), asyncio.Event()
    taking = client.takes(some([EVENT], then=never))
    await client.until(frame(EVENT), 1)
    client.leaves.set()
    await asyncio.wait_for(taking, 20)
    assert client.left == 1 and DONE not in client.taken


async def test_a_client_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.01)
    monkeypatch.setattr(sse, "STALLED_S", 0.05)
    client = Client(slow=True)
    await client.takes(some([EVENT]))
    assert client.taken == [] and client.left == 1


async def test_a_fault_of_the_source_is_not_hidden() -> None:
    async def broken() -> AsyncIterator[Batch]:
        yield Batch([EVENT], is_last=False)
        raise RuntimeError("broken")

    client = Client()
    with pytest.raises(RuntimeError, match="broken"):
        await client.takes(broken())
    assert client.left == 1
