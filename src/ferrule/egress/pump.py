"""Tunnels in a thread of their own: bytes go from socket to socket within the kernel, and the event loop has its time
for other work. Only Linux can do that; elsewhere the loop moves them.
"""

import asyncio
import functools
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from ferrule.egress.streams import PATIENCE_S, SocketStream, tunnel
from ferrule.sync import uninterrupted

MOST = 1 << 20
"""Bytes moved at once. A pipe bounds them first, to 16 pieces of up to 32 KiB. Pipes are not made larger: a thousand
of the usual size are what an ordinary user may have."""
MAX_SPARE = 32
"""Pipes kept for the next turn. One serves all tunnels but those whose reader waits, which hold one each."""
SPARE_S = 10.0
"""Until a thread without a tunnel ends: many containers are used once and kept for a while."""
END_S = 5.0
"""Until the thread has ended: it never waits for a peer, so this takes milliseconds."""


class Pump:
    """Passes bytes between pairs of connections, in one thread for all that are open. Close it to end that."""

    def __init__(self) -> None:
        self._worker: _Worker | None = None

    async def tunnel(self, one: SocketStream, other: SocketStream, idle_s: float = PATIENCE_S) -> None:
        """Pass bytes both ways until both have ended, or nothing came for `idle_s` seconds. Once this returns, the
        sockets may be closed. Raises `OSError`."""
        if not can_splice():
            await tunnel(one, other, idle_s)
            return
        for source, target in ((one, other), (other, one)):
            if early := source.take_early():
                await target.write(early)
        pair = _Pair(one.socket, other.socket, asyncio.get_running_loop().create_future())
        worker = self._begin(pair)
        try:
            await _over_or_idle(pair, idle_s)
        finally:
            if not pair.over.done():
                worker.ask(lambda: worker.drop(pair))
                # The number of a socket that was closed too early soon means another connection.
                await uninterrupted(pair.over)
        if (error := pair.over.result()) is not None:
            raise error

    def _begin(self, pair: "_Pair") -> "_Worker":
        running = self._worker
        if running is not None and running.ask(lambda: running.add(pair)):
            return running
        self._worker = _Worker(asyncio.get_running_loop(), pair)
        return self._worker

    async def aclose(self) -> None:
        """End the thread, and the tunnels that are left."""
        if (worker := self._worker) is not None:
            worker.ask(worker.end)
            await asyncio.wait([worker.ended], timeout=END_S)
            if worker.ended.done():
                worker.thread.join()  # of which nothing is left but its return


@functools.cache
def can_splice() -> bool:
    """Return whether this system moves bytes between sockets and pipes. Not all that pass for Linux do."""
    if not hasattr(os, "splice") or not hasattr(select, "epoll"):
        return False
    one, other = socket.socketpair()
    pipe = _new_pipe()
    try:
        with one, other:
            one.send(b"x")
            return os.splice(other.fileno(), pipe[1], 1) == 1 == os.splice(pipe[0], other.fileno(), 1)
    except OSError:
        return False
    finally:
        _close(pipe)


async def _over_or_idle(pair: "_Pair", idle_s: float) -> None:
    while not pair.over.done():
        if (left := pair.moved + idle_s - monotonic()) <= 0:
            raise TimeoutError("nothing came through the tunnel")
        await asyncio.wait([pair.over], timeout=left)


class _Way:
    """One direction of a pair. `held` bytes are in `pipe`; without one, none are."""

    __slots__ = ("ended", "held", "pair", "pipe", "ready", "source", "target")

    def __init__(self, pair: "_Pair", source: socket.socket, target: socket.socket) -> None:
        self.pair, self.source, self.target = pair, source, target
        self.pipe: tuple[int, int] | None = None
        self.held = 0
        self.ready = self.ended = False


class _Pair:
    """Two connections that are passed on to each other. `moved`: when bytes came last. `over`: what ended it."""

    __slots__ = ("moved", "over", "ways")

    def __init__(self, one: socket.socket, other: socket.socket, over: "asyncio.Future[OSError | None]") -> None:
        self.ways = _Way(self, one, other), _Way(self, other, one)
        self.over = over
        self.moved = monotonic()


class _Worker:
    """The thread. All but `ask` runs in it. It begins with its first pair: without one it might have ended before it
    is asked for anything."""

    def __init__(self, loop: asyncio.AbstractEventLoop, first: _Pair) -> None:
        self.loop = loop
        self.ended: asyncio.Future[OSError | None] = loop.create_future()
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._asked: deque[Callable[[], None]] = deque()
        self._ways: dict[int, tuple[_Way, _Way]] = {}
        self._ready: deque[_Way] = deque()
        self._spare: list[tuple[int, int]] = []
        self._asking = threading.Lock()
        self._goes_on = True
        self.ask(lambda: self.add(first))
        self.thread = threading.Thread(target=self._run, name="ferrule-tunnels", daemon=True)
        self.thread.start()

    def ask(self, what: Callable[[], None]) -> bool:
        """Have something done in the thread. False if that ends."""
        with self._asking:
            if self._goes_on:
                self._asked.append(what)
                os.eventfd_write(self._bell, 1)
            return self._goes_on

    def add(self, pair: _Pair) -> None:
        """Begin with a pair."""
        there, back = pair.ways
        try:
            for way, answers in ((there, back), (back, there)):
                self._epoll.register(way.source, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
                self._ways[way.source.fileno()] = way, answers
        except OSError as error:
            self.drop(pair, error)

    def drop(self, pair: _Pair, error: OSError | None = None) -> None:
        """Let go of a pair, if that has not been done, and say so."""
        for way in pair.ways:
            if self._ways.pop(way.source.fileno(), None) is not None:
                self._epoll.unregister(way.source)
            if way.pipe is not None:
                _close(way.pipe)
            way.pipe, way.ready = None, False
        self._tell(pair.over, error)

    def end(self) -> None:
        """End the thread."""
        with self._asking:
            self._goes_on = False

    def _run(self) -> None:
        try:
            while self._goes_on:
                self._look()
                for _ in range(len(self._ready)):
                    self._take_turn(self._ready.popleft())
        finally:
            self.end()
            self._answer()
            for way, _ in [*self._ways.values()]:
                self.drop(way.pair, ConnectionAbortedError("tunnels have ended"))
            for pipe in self._spare:
                _close(pipe)
            self._epoll.close()
            os.close(self._bell)
            self._tell(self.ended, None)

    def _tell(self, future: "asyncio.Future[OSError | None]", result: OSError | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waits
            self.loop.call_soon_threadsafe(_set, future, result)

    def _look(self) -> None:
        """Find out who has bytes, or room for those that are held."""
        found = self._epoll.poll(0 if self._ready else None if self._ways else SPARE_S)
        if not found and not self._ways:
            with self._asking:
                self._goes_on = bool(self._asked)
        for fd, events in found:
            if fd == self._bell:
                os.eventfd_read(fd)
                self._answer()
            elif fd in self._ways:
                way, back = self._ways[fd]
                if events & ~select.EPOLLOUT and not way.held:
                    self._wake(way)
                if events & ~select.EPOLLIN and back.held:
                    self._wake(back)

    def _answer(self) -> None:
        while self._asked:
            self._asked.popleft()()

    def _wake(self, way: _Way) -> None:
        if not way.ready and not way.ended:
            way.ready = True
            self._ready.append(way)

    def _take_turn(self, way: _Way) -> None:
        if not way.ready:  # it was let go meanwhile
            return
        try:
            if self._move(way):
                self._ready.append(way)
                return
        except OSError as error:
            self.drop(way.pair, error)
            return
        way.ready = False
        if all(one.ended for one in way.pair.ways):
            self.drop(way.pair)

    def _move(self, way: _Way) -> bool:
        """Move some bytes. Returns whether more may be moved; if not, an event tells when. Raises `OSError`."""
        flags = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
        if way.pipe is None:
            way.pipe = self._spare.pop() if self._spare else _new_pipe()
        try:
            if not way.held:
                way.held = os.splice(way.source.fileno(), way.pipe[1], MOST, flags=flags)
                if not way.held:
                    way.ended = True
                    way.target.shutdown(socket.SHUT_WR)
                    return False
            way.held -= os.splice(way.pipe[0], way.target.fileno(), way.held, flags=flags)
        except BlockingIOError:
            return False
        finally:
            if not way.held:
                self._put_back(way.pipe)
                way.pipe = None
        way.pair.moved = monotonic()
        return True

    def _put_back(self, pipe: tuple[int, int]) -> None:
        if len(self._spare) < MAX_SPARE:
            self._spare.append(pipe)
        else:
            _close(pipe)


def _set(future: "asyncio.Future[OSError | None]", result: OSError | None) -> None:
    if not future.done():
        future.set_result(result)


def _new_pipe() -> tuple[int, int]:
    return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)


def _close(pipe: tuple[int, int]) -> None:
    for fd in pipe:
        os.close(fd)
