"""The client of the mothers: a helper process forks the fork servers of policies, or of containers."""

import asyncio
import os
import re
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeVar

from ferrule.process.launcher import LaunchError
from ferrule.sandbox.linux.client import SOCKET_BUFFER, InitSource, Message, receive, send, when_ended

PLACE = Path(__file__).resolve().parent.parent
ENTRY = """
import gc, sys
gc.disable()
_, place, control, kind = sys.argv
sys.path.insert(0, place)
from linux.mother import main
main(int(control), kind)
"""
"""Imports the mother instead of running it as a script, so that its bytecode is cached; from its own folder, so that
nothing else of ours is imported. Nothing in it is garbage: collecting would only take time, and copy pages that its
children share."""
EXIT_PATIENCE = 0.1
"""Seconds: one that closed its socket unasked has exited, or will in a moment."""


Kind = Literal["zygote", "holder"]
"""What the children are: the fork servers of policies, or of containers."""


INHERITED: Final = re.compile(rb"^(?:Umask|Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp\w*|\w+_allowed):.*$", re.MULTILINE)
"""Lines of `/proc/PID/status` (proc(5))."""
FILES: Final = ("limits", "cgroup", "oom_score_adj")
NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "user", "uts")
Source = TypeVar("Source", bound=InitSource)


class Mothers:
    """The mother of one owner's fork servers: `bear` forks one. What this process starts would get its users, limits
    and namespaces, so where these have changed since the mother began, another takes her place; so, too, where she has
    ended. The servers that there are go on.

    `interpreter` replaces `sys.executable`.
    """

    def __init__(self, kind: Kind, interpreter: Sequence[str] = ()) -> None:
        self._kind: Kind = kind
        self._interpreter = interpreter
        self._mother: _Mother | None = None
        self._replaced: list[_Mother] = []
        self._given: tuple[bytes, ...] = ()

    def bear(self, make: Callable[[socket.socket], Source], settings: Message, fds: Sequence[int] = ()) -> Source:
        """Begin a server with these settings and descriptors. `make` makes its client, from our end of its control
        socket. Waits for nothing. Raises `LaunchError` if no interpreter starts."""
        mother = self._current()
        ours, theirs = control_pair()
        with theirs:
            source = make(ours)
            passed = (theirs.fileno(), *fds)
            # One that was killed unnoticed is replaced once.
            if not mother.bear(source, settings, passed) and not self._current().bear(source, settings, passed):
                source.unborn("")
        return source

    async def aclose(self) -> None:
        """End the mother. Her servers end when their clients close them."""
        mothers, self._mother, self._replaced = [*self._replaced, self._mother], None, []
        ended = [mother for mother in mothers if mother is not None]
        for mother in ended:
            mother.close()
        for mother in ended:
            await mother.gone()

    def _current(self) -> "_Mother":
        given = _given_to_children()
        if self._mother is not None and (given != self._given or not self._mother.alive):
            self._mother.retire()
            self._replaced = [mother for mother in (*self._replaced, self._mother) if mother.alive]
            self._mother = None
        if self._mother is None:
            self._given = given
            self._mother = _Mother(self._kind, self._interpreter)
        return self._mother


class _Mother:
    """One helper process that forks servers. Its own end leaves those that there are alone."""

    def __init__(self, kind: Kind, interpreter: Sequence[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._control, theirs = control_pair()
        with theirs:
            self._errors = os.memfd_create("stderr", os.MFD_CLOEXEC)
            try:
                self._process = _start(kind, interpreter, theirs, self._errors)
            except LaunchError:
                self._control.close()
                os.close(self._errors)
                raise
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._readable)
        self._unborn: deque[InitSource] = deque()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.alive = True

    def bear(self, source: InitSource, settings: Message, fds: Sequence[int]) -> bool:
        """Ask for the process of `source`; False if the mother has ended. `fds` begin with its control socket."""
        try:
            send(self._control, settings, fds)
        except OSError:
            self.close()
            return False
        self._unborn.append(source)
        return True

    def retire(self) -> None:
        """Let it end when it has begun what it was asked for."""
        if self.alive:
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the mother; `gone` waits for that."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        self._control.close()
        words = self._last_words() if self._unborn else ""
        self._reap()
        while self._unborn:
            self._unborn.popleft().unborn(words)

    async def gone(self) -> None:
        await asyncio.shield(self._gone)

    def _readable(self) -> None:
        try:
            reply = receive(self._control)
        except BlockingIOError:
            return
        if reply.kind == b"C":
            self._unborn.popleft().born(*struct.unpack("i", reply.body), *reply.fds)
        elif not reply.kind:
            self.close()

    def _last_words(self) -> str:
        """Describe how it ended, with the last line of its stderr, which names an exception."""
        lines = os.pread(self._errors, 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
        status = ""
        with suppress(subprocess.TimeoutExpired):
            status = f" with status {self._process.wait(EXIT_PATIENCE)}"
        return f"{status}: {lines[-1]}" if lines else status

    def _reap(self) -> None:
        os.close(self._errors)
        if self._process.poll() is not None:
            self._gone.set_result(None)
            return

        def ended() -> None:
            self._process.wait()
            self._gone.set_result(None)

        when_ended(os.pidfd_open(self._process.pid), ended)


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Make a control socket: our end and theirs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
    return ours, theirs


def _start(kind: Kind, interpreter: Sequence[str], control: socket.socket, errors: int) -> subprocess.Popen[bytes]:
    python = [*(interpreter or (sys.executable,)), "-I", "-S", "-E", "-c", ENTRY]
    try:
        return subprocess.Popen(
            [*python, str(PLACE), str(control.fileno()), kind],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"},
            pass_fds=[control.fileno()],
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError(f"the sandbox helper could not be started: {error.strerror}") from error


def _given_to_children() -> tuple[bytes, ...]:
    """Return what the kernel gives of this thread to what it starts, as far as it can change."""
    own = "/proc/thread-self/"
    found = INHERITED.findall(_read(f"{own}status"))
    found += (_read(own + name) for name in FILES)
    found += (_link(f"{own}ns/{name}") for name in NAMESPACES)
    found += (b"%d" % os.getpriority(os.PRIO_PROCESS, 0), b"%d" % os.sched_getscheduler(0))
    return tuple(found)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # a kernel without it
        return b""


def _link(path: str) -> bytes:
    try:
        return os.readlink(os.fsencode(path))
    except OSError:
        return b""
