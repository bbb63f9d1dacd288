"""The client of one fork server: asks it for inits, and notices when it or one of them ends."""

import asyncio
import errno
import marshal
import os
import resource
import signal
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from ferrule.process.launcher import LaunchError
from ferrule.sandbox.way_out import Listeners, WayOut

SOCKET_BUFFER = 1 << 20
"""Bytes: one datagram of `LARGEST_INLINE` must fit, whatever else is queued."""
LARGEST_INLINE = 30_000
"""Bytes, far below what the socket takes; a longer message (a big environment) is sent in a memfd."""
LARGEST_REPLY = 1 << 16
"""Bytes: a reply is a letter, some numbers and a few names."""
MOST_DESCRIPTORS = 16
"""Of one reply: the listeners of a way out and its files."""
Message = dict[str, object]
WireCover = tuple[str, bytes, bytes]
WireCovers = Sequence[WireCover]
"""Protected paths as sent to an init: kind, path, content."""
_CLOSED = b""


class HelperEnded(LaunchError):
    """A helper process ended without a reason: somebody killed it. A new one may do."""


class Reply(msgspec.Struct, frozen=True):
    """One message from a zygote or an init. Its descriptors belong to the receiver.

    `kind` is L(isteners), R(eady), C(hild), S(tarted), T(erminal), F(ile), X (exit) or E(rror); empty at the end of
    the channel.
    """

    kind: bytes
    body: bytes = b""
    fds: tuple[int, ...] = ()


class InitProcess:
    """An init that waits for its command: a channel, a pidfd, and the paths that it protects already."""

    def __init__(self, channel: int, pidfd: int, covers: frozenset[WireCover] = frozenset()) -> None:
        self.covers = covers
        self.channel = socket.socket(fileno=channel)
        self.channel.setblocking(False)
        self.pidfd = pidfd

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing once the init has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)


class InitSource:
    """The client of a fork server, which starts in the background; `take` waits until it is ready.

    `control` is our end of its control socket. Its mother says by `born` or `unborn` which process it is. `way_out`
    serves its network.
    """

    def __init__(self, control: socket.socket, way_out: WayOut | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._readable)
        self._waiting: deque[tuple[asyncio.Future[InitProcess], WireCovers]] = deque()
        self._spares: deque[InitProcess] = deque()
        self._asked: deque[WireCovers] = deque()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._way_out = way_out
        self._listeners: Listeners | None = None
        self.pid = 0
        self._pidfd: int | None = None
        self._mothers_words = ""
        self.ready = False
        self.landlock = 0
        """The version of Landlock in use, once the zygote is ready; 0 for none."""
        self.mapped = 0
        """1 if commands have many ids, once it is ready."""
        self._became_ready: asyncio.Future[None] | None = None
        self.failure: LaunchError | None = None

    def born(self, pid: int, pidfd: int) -> None:
        """Learn its process from the mother."""
        self.pid = pid
        if self.failure is None:
            self._pidfd = pidfd
        else:
            when_ended(pidfd, self._set_gone)

    def unborn(self, words: str) -> None:
        """Learn that it has no process, or that nobody will tell; `words` describe how the mother ended."""
        self._mothers_words = words
        self._ended()
        self._set_gone()

    @property
    def alive(self) -> bool:
        return self.failure is None

    @property
    def spares(self) -> int:
        """Count inits that wait or were asked for."""
        return len(self._spares) + max(len(self._asked) - len(self._waiting), 0)

    def ask(self, covers: WireCovers) -> None:
        """Ask for one more init, with these paths protected already."""
        self._asked.append(covers)
        try:
            send(self._control, {"covers": covers})
        except OSError:
            self._ended()

    def wake(self) -> None:
        """Wake the init that is taken next, because its command comes in a moment."""
        if self._spares:
            with suppress(OSError):  # it has ended, as `take` notices
                send(self._spares[0].channel, {})

    async def take(self, covers: WireCovers) -> InitProcess:
        """Return a spare init that protects no more than `covers`, or a new one. Raises `LaunchError`.

        One that protects more was made for another session, or before a repository became our own.
        """
        while self._spares:
            init = self._spares.popleft()
            if init.covers.issubset(covers) and not _has_ended(init):
                return init
            init.close()
        if self.failure is not None:
            raise type(self.failure)(str(self.failure))
        future: asyncio.Future[InitProcess] = self._loop.create_future()
        self._waiting.append((future, covers))
        if len(self._asked) < len(self._waiting):
            self.ask(covers)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._spares.append(future.result())
            raise

    async def wait_ready(self) -> None:
        """Wait until the zygote is ready. Raises `LaunchError` if the sandbox cannot be built."""
        if self._became_ready is None:
            self._became_ready = self._loop.create_future()
            self._settle()
        await asyncio.shield(self._became_ready)
        if self.failure is not None:
            raise type(self.failure)(str(self.failure))

    def _settle(self) -> None:
        if self._became_ready is not None and not self._became_ready.done() and (self.ready or self.failure):
            self._became_ready.set_result(None)

    def drop_spares(self) -> None:
        while self._spares:
            self._spares.popleft().close()

    def close(self) -> None:
        """End the zygote and all its commands; `gone` waits for that."""
        self._lost(LaunchError("the sandbox was closed"))

    async def gone(self) -> None:
        await asyncio.shield(self._gone)

    def _readable(self) -> None:
        try:
            reply = receive(self._control)
        except BlockingIOError:
            return
        if reply.kind:
            self._heard(reply)
        else:
            self._ended()

    def _heard(self, reply: Reply) -> None:
        if reply.kind == b"R":
            self.ready = True
            self.landlock, self.mapped = reply.body
            self._settle()
        elif reply.kind == b"C":
            channel, pidfd = reply.fds
            self._hand_over(InitProcess(channel, pidfd, frozenset(self._asked.popleft())))
        elif reply.kind == b"L" and self._way_out is not None:
            self._listeners = Listeners.of(reply.fds)
            self._way_out.serve(self._listeners)
        elif reply.kind == b"E":
            self._lost(LaunchError(self._explain(reply.body)))

    def _explain(self, failure: bytes) -> str:
        return f"the sandbox could not be built: {failure_text(failure)}"

    def _hand_over(self, init: InitProcess) -> None:
        while self._waiting:
            future, covers = self._waiting[0]
            if future.done():
                self._waiting.popleft()
            elif init.covers.issubset(covers):
                self._waiting.popleft()
                future.set_result(init)
                return
            else:
                init.close()
                self.ask(covers)
                return
        self._spares.append(init)

    def _lost(self, error: LaunchError) -> None:
        if self.failure is None:
            self.failure = error
            self._loop.remove_reader(self._control)
            self._control.close()
            self._reap()
            if self._way_out is not None and self._listeners is not None:
                self._way_out.stop(self._listeners)
        self._settle()
        self.drop_spares()
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def _ended(self) -> None:
        """Handle its end; messages that it sent before still count."""
        with suppress(BlockingIOError):
            while self.failure is None and (reply := receive(self._control)).kind:
                self._heard(reply)
        if self.failure is None:
            self._lost(HelperEnded(f"the sandbox helper process ended{self._mothers_words}"))

    def _reap(self) -> None:
        """See to it that `_gone` is set when the process has ended."""
        if self._pidfd is not None:
            when_ended(self._pidfd, self._set_gone)
            self._pidfd = None

    def _set_gone(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)


def when_ended(pidfd: int, then: Callable[[], None]) -> None:
    """Call `then` once the process has ended. Takes the descriptor."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        then()

    loop.add_reader(pidfd, ended)


def send(channel: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message to a zygote or an init. Raises OSError if it is gone."""
    data = marshal.dumps(message, 2)
    if len(data) <= LARGEST_INLINE:
        _send(channel, b"I" + data, fds)
        return
    memory = os.memfd_create("message", os.MFD_CLOEXEC)
    with os.fdopen(memory, "wb") as file:
        file.write(data)
        file.flush()
        _send(channel, b"M", (memory, *fds))


def _send(channel: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    try:
        channel.sendmsg([data], rights, socket.MSG_NOSIGNAL)
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        with _all_descriptors():
            channel.sendmsg([data], rights, socket.MSG_NOSIGNAL)


@contextmanager
def _all_descriptors() -> Iterator[None]:
    """Take all that we may have. The kernel compares our limit with the user's descriptors that are on their way
    between processes, and commands may have sent half of the highest limit (`server.keep_shares`)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def receive(channel: socket.socket) -> Reply:
    """Receive the next message. Raises BlockingIOError if there is none yet."""
    try:
        data, control = _received(channel)
    except ConnectionError:
        # It ended with a message of ours unread, which the kernel tells before what it said itself.
        try:
            data, control = _received(channel)
        except (ConnectionError, BlockingIOError):
            return Reply(_CLOSED)
    fds = tuple(fd for _, _, raw in control for (fd,) in struct.iter_unpack("i", raw))
    return Reply(data[:1], data[1:], fds)


def _received(channel: socket.socket) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    data, control, _, _ = channel.recvmsg(
        LARGEST_REPLY, socket.CMSG_SPACE(4 * MOST_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
    )
    return data, control


def failure_text(body: bytes) -> str:
    """Describe an error that a zygote or an init reported, for developers."""
    number, what, path = parse_failure(body)
    place = f" {path}" if path else ""
    return f"{what}{place}: {os.strerror(number)}" if number else f"{what}{place}"


def parse_failure(body: bytes) -> tuple[int, str, str]:
    """Return errno, the step that failed, and the path concerned."""
    (number,) = struct.unpack_from("i", body)
    what, _, path = body[4:].partition(b"\0")
    return number, what.decode("utf-8", "replace"), os.fsdecode(path)


def _has_ended(init: InitProcess) -> bool:
    """Tell whether an idle init has ended: it sends nothing else."""
    try:
        init.channel.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
