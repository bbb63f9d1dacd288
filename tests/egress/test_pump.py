"""Tunnels: bytes between two connections, moved by a thread or by the loop."""

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import pytest

from ferrule.egress import pump as pump_module
from ferrule.egress.pump import Pump, _over_or_idle
from ferrule.egress.streams import PATIENCE_S, SocketStream

BIG = os.urandom(1 << 16) * 64
NAME = "ferrule-tunnels"


class Ends:
    """Both ends of a tunnel, and the tunnel."""

    def __init__(self, pump: Pump, early: bytes = b"", idle_s: float = PATIENCE_S) -> None:
        (self.one, inner), (self.other, outer) = tcp_pair(), tcp_pair()
        self.inner, self.outer = inner, outer
        streams = SocketStream(inner, early), SocketStream(outer)
        self.task = asyncio.create_task(pump.tunnel(*streams, idle_s))

    def close(self) -> None:
        for one in (self.one, self.other, self.inner, self.outer):
            one.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    one.setblocking(False)
    return one, other


@contextmanager
def opened(pump: Pump, **options: float) -> Iterator[Ends]:
    with ExitStack() as stack:
        ends = Ends(pump, **options)  # type: ignore[arg-type]
        stack.callback(ends.close)
        yield ends


@asynccontextmanager
async def pumping() -> AsyncIterator[Pump]:
    """A pump; afterwards nothing of it is left."""
    before = set(os.listdir("/proc/self/fd"))
    pump = Pump()
    try:
        yield pump
    finally:
        await pump.aclose()
    assert set(os.listdir("/proc/self/fd")) <= before
    assert NAME not in [thread.name for thread in threading.enumerate()]


async def said(connection: socket.socket, count: int) -> bytes:
    """Return so many bytes, fewer at the end."""
    told, loop = b"", asyncio.get_running_loop()
    while len(told) < count and (block := await loop.sock_recv(connection, count - len(told))):
        told += block
    return told


@pytest.fixture(params=["thread", "loop"])
def mover(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "thread" and not pump_module.can_splice():
        pytest.skip("this system has no splice")
    monkeypatch.setattr(pump_module, "can_splice", lambda: request.param == "thread")
    return str(request.param)


@pytest.mark.usefixtures("mover")
async def test_bytes_pass_both_ways_those_read_early_first_and_an_end_is_passed_on() -> None:
    loop = asyncio.get_running_loop()
    async with pumping() as pump:
        with opened(pump, early=b"early ") as ends:  # type: ignore[arg-type]
            writing = asyncio.create_task(loop.sock_sendall(ends.one, BIG))
            answering = asyncio.create_task(loop.sock_sendall(ends.other, BIG))
            assert await said(ends.other, 6 + len(BIG)) == b"early " + BIG  # the other way is full by now
            assert await said(ends.one, len(BIG)) == BIG
            await writing
            await answering
            ends.one.shutdown(socket.SHUT_WR)
            assert await said(ends.other, 1) == b""
            await loop.sock_sendall(ends.other, b"last")
            assert await said(ends.one, 4) == b"last"
            ends.other.shutdown(socket.SHUT_WR)
            assert await said(ends.one, 1) == b""
            await ends.task


@pytest.mark.usefixtures("mover")
async def test_a_silent_tunnel_ends() -> None:
    async with pumping() as pump:
        with opened(pump, idle_s=0.02) as ends, pytest.raises(TimeoutError):
            await ends.task


async def test_a_tunnel_that_speaks_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(pump_module, "monotonic", lambda: clock[0])
    loop = asyncio.get_running_loop()
    async with pumping() as pump:
        with opened(pump, idle_s=100) as ends:
            await loop.sock_sendall(ends.one, b"1")
            assert await said(ends.other, 1) == b"1"
            clock[0] = 90
            for word in (b"2", b"3"):  # the time of the first is noted by when the second has come
                await loop.sock_sendall(ends.one, word)
                assert await said(ends.other, 1) == word
            ((way, _), _) = pump._worker._ways.values()  # type: ignore[union-attr]
            clock[0] = 189
            waiting = asyncio.create_task(_over_or_idle(way.pair, 100))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            clock[0] = 300
            with pytest.raises(TimeoutError):
                await _over_or_idle(way.pair, 100)
            for task in (waiting, ends.task):
                task.cancel()
            await asyncio.wait([waiting, ends.task])


@pytest.mark.usefixtures("mover")
async def test_a_peer_that_breaks_ends_its_own_tunnel_alone() -> None:
    loop = asyncio.get_running_loop()
    async with pumping() as pump:
        with opened(pump) as whole, opened(pump) as broken:
            for ends in (whole, broken):
                await loop.sock_sendall(ends.one, b"x")
                assert await said(ends.other, 1) == b"x"
            broken.one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            broken.one.close()  # a reset
            with pytest.raises(ConnectionError):
                await broken.task
            await loop.sock_sendall(whole.one, BIG[:100])
            assert await said(whole.other, 100) == BIG[:100]
            whole.task.cancel()
            await asyncio.wait([whole.task])


@pytest.mark.usefixtures("mover")
async def test_readers_that_wait_hold_up_nobody_and_a_cancelled_tunnel_lets_go() -> None:
    loop = asyncio.get_running_loop()
    async with pumping() as pump:
        with ExitStack() as stack:
            full = [stack.enter_context(opened(pump)) for _ in range(40)]
            for ends in full:
                with suppress(BlockingIOError):
                    while True:  # until its own buffers are full, too
                        ends.one.send(BIG)
            free = stack.enter_context(opened(pump))
            await loop.sock_sendall(free.one, b"free")
            assert await said(free.other, 4) == b"free"
            for ends in (*full, free):
                ends.task.cancel()
            await asyncio.wait([ends.task for ends in (*full, free)])
            assert all(ends.task.cancelled() for ends in (*full, free))
            await loop.sock_sendall(free.one, b"mine")
            assert await said(free.inner, 4) == b"mine"  # nobody else reads it


async def test_closing_ends_tunnels() -> None:
    pump = Pump()
    with opened(pump) as ends:
        ends.one.send(b"x")
        assert await said(ends.other, 1) == b"x"
        await pump.aclose()
        with pytest.raises(ConnectionAbortedError):
            await ends.task
    assert NAME not in [thread.name for thread in threading.enumerate()]


async def test_a_thread_without_tunnels_ends_and_the_next_tunnel_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "SPARE_S", 0.0)  # it may end before it is asked for anything
    async with pumping() as pump:
        for _ in range(20):
            with opened(pump) as ends:
                ends.one.send(b"x")
                assert await said(ends.other, 1) == b"x"
                ends.task.cancel()
                await asyncio.wait([ends.task])
            assert pump._worker is not None
            await asyncio.wait_for(asyncio.shield(pump._worker.ended), 30)


def test_a_system_that_refuses_to_splice_moves_bytes_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "no")

    before = os.listdir("/proc/self/fd")
    assert pump_module.can_splice.__wrapped__()
    monkeypatch.setattr(os, "splice", refused)
    assert not pump_module.can_splice.__wrapped__()
    assert os.listdir("/proc/self/fd") == before
