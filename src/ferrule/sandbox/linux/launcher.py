"""Start one command in an init of its own; `ConfinedChild` stands for it."""

import asyncio
import errno
import fcntl
import os
import platform
import resource
import signal
import struct
import termios
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache

import msgspec

from ferrule.process.launcher import ExitStatus, LaunchError, Limits, Pipes, Pty, Stdio
from ferrule.sandbox.boundary import Cover
from ferrule.sandbox.environment import confined_environment
from ferrule.sandbox.linux.client import InitProcess, Reply, failure_text, parse_failure, receive, send

TIOCSIG = 0x40045436
"""The ioctl on a terminal's master that signals the foreground group (asm-generic/ioctls.h)."""

EXIT = "iqdd?"
"""What an init says of an exit, before the names: status, memory, times, and whether processes go on."""
HIDDEN_PROC = (
    "the kernel refuses a /proc of its own ({}), because parts of the present one are hidden, and that one shows the "
    "host's processes: inside Docker, start it with `--security-opt systempaths=unconfined`"
)
LOST = (
    "the sandbox of this command ended before the command did (its helper was killed, or memory ran out); "
    "changes that the command made remain, and the next command gets a new sandbox"
)


class Ending(msgspec.Struct, frozen=True):
    """How a command ended, and the names of processes that it left running; they go on if `lingers`, and else were
    ended with it."""

    status: ExitStatus
    survivors: tuple[str, ...] = ()
    lingers: bool = False


class ConfinedChild:
    """A command in its sandbox. `on_end` is called once, when neither it nor a descendant is left."""

    def __init__(self, init: InitProcess, soft_kill: bool, on_end: Callable[[], None]) -> None:
        self.stdin: int | None = None
        self.stdout = -1
        self.stderr: int | None = None
        self._init = init
        self._kill_signal = signal.SIGUSR1 if soft_kill else signal.SIGKILL
        self._on_end = on_end
        self._killed = False
        self._terminal: int | None = None
        self.notes: Callable[[], Sequence[str]] = tuple
        """Returns, once, what has to be told with this command's leftovers."""
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[Reply] = self._loop.create_future()
        self._ended: asyncio.Future[Ending | LaunchError] = self._loop.create_future()
        self._loop.add_reader(init.channel, self._readable)

    async def started(self) -> None:
        """Wait until the program runs. Raises `LaunchError` if it fails to start."""
        try:
            reply = await self._started
        except asyncio.CancelledError:
            await self.kill_tree()
            raise
        if reply.kind == b"E":
            raise _refused(reply.body)
        if reply.kind != b"S":
            raise LaunchError("the sandbox helper ended before the command was started")

    def use_terminal(self, master: int) -> None:
        self.stdin = self.stdout = master
        self._terminal = os.dup(master)

    async def wait(self) -> ExitStatus:
        return (await self.ending()).status

    async def ending(self) -> Ending:
        """Wait for the end, and say what was left running. Raises `LaunchError` if the sandbox itself was killed."""
        ending = await asyncio.shield(self._ended)
        if isinstance(ending, LaunchError):
            raise ending
        return ending

    async def interrupt(self) -> None:
        if self._ended.done():
            return
        if self._terminal is None:
            self._init.signal(signal.SIGINT)
        else:
            with suppress(OSError):
                fcntl.ioctl(self._terminal, TIOCSIG, signal.SIGINT)

    async def kill_tree(self, grace: float = 0.0) -> None:
        if grace > 0 and not self._ended.done():
            self._init.signal(signal.SIGTERM)
            await asyncio.wait([self._ended], timeout=grace)
        if not self._ended.done():
            self._killed = True
            self._init.signal(self._kill_signal)
            await asyncio.wait([self._ended])

    async def leftovers(self, output_held: bool) -> str | None:
        del output_held  # the init names the processes
        ending = await self.ending()
        fate = "Left running" if ending.lingers else "Ended with the command"
        told = [f"{note}." for note in self.notes()]
        if ending.survivors:
            told.append(f"{fate}: {', '.join(ending.survivors)}.")
        return " ".join(told) or None

    def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None:
            termios.tcsetwinsize(self._terminal, (rows, columns))

    def _readable(self) -> None:
        try:
            reply = receive(self._init.channel)
        except BlockingIOError:
            return
        if reply.kind == b"T":
            self.use_terminal(reply.fds[0])
        elif reply.kind == b"X":
            self._end(_ending(reply.body))
        elif not reply.kind:
            self._channel_closed()
        elif not self._started.done():
            self._started.set_result(reply)

    def _channel_closed(self) -> None:
        """The init is dying; its pidfd shows when the kernel has ended all its processes."""
        self._loop.remove_reader(self._init.channel)
        self._loop.add_reader(self._init.pidfd, self._init_gone)

    def _init_gone(self) -> None:
        self._loop.remove_reader(self._init.pidfd)
        self._end(Ending(ExitStatus(signal=signal.SIGKILL)) if self._killed else LaunchError(LOST))

    def _end(self, ending: Ending | LaunchError) -> None:
        self._loop.remove_reader(self._init.channel)
        self._init.close()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
        if not self._started.done():
            self._started.set_result(Reply(b""))
        self._ended.set_result(ending)
        # After those who wait for the exit have got it.
        self._loop.call_soon(self._on_end)


def _ending(body: bytes) -> Ending:
    # Sent from inside the sandbox: only bytes of a known shape are accepted.
    status, _, _, _, lingers = struct.unpack_from(EXIT, body)
    code = os.waitstatus_to_exitcode(status)
    names = body[struct.calcsize(EXIT) :].decode("utf-8", "replace")
    exit_status = ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code)
    return Ending(exit_status, tuple(name for name in names.split("\0") if name), lingers)


def spawn(
    init: InitProcess,
    request: Mapping[str, object],
    stdio: Stdio,
    soft_kill: bool,
    on_end: Callable[[], None],
) -> ConfinedChild:
    """Send a command to its init. Raises OSError if the init is gone; nothing was started then."""
    with ExitStack() as ours, ExitStack() as theirs:
        ends: list[int] = []
        fds: list[int | None] = [None, None, None]
        if isinstance(stdio, Pipes):
            fds, ends = _pipes(stdio, ours, theirs)
        terminal = (stdio.rows, stdio.columns) if isinstance(stdio, Pty) else None
        stdin = isinstance(stdio, Pipes) and (stdio.stdin or stdio.given is not None)
        send(init.channel, {**request, "terminal": terminal, "stdin": stdin}, ends)
        child = ConfinedChild(init, soft_kill, on_end)
        child.stdin, child.stderr = fds[0], fds[2]
        child.stdout = -1 if fds[1] is None else fds[1]
        ours.pop_all()
        return child


def _pipes(stdio: Pipes, ours: ExitStack, theirs: ExitStack) -> tuple[list[int | None], list[int]]:
    """Create the pipes. Returns our three descriptors, and the other ends to send, in the order of the streams."""

    def pipe(mine: int) -> tuple[int, int]:
        pair = os.pipe()
        ours.callback(os.close, pair[mine])
        theirs.callback(os.close, pair[1 - mine])
        return pair[mine], pair[1 - mine]

    into, in_end = pipe(1) if stdio.stdin else (None, stdio.given)
    out, out_end = pipe(0)
    err, err_end = (None, out_end) if stdio.merge else pipe(0)
    return [into, out, err], [end for end in (in_end, out_end, err_end) if end is not None]


async def started(child: ConfinedChild) -> None:
    """Wait until the program runs. Closes the descriptors and raises `LaunchError` if it fails to start."""
    try:
        await child.started()
    except BaseException:
        for fd in {child.stdin, child.stdout, child.stderr} - {None, -1}:
            os.close(fd)  # type: ignore[arg-type]  # None was removed
        raise


async def open_by(init: InitProcess, path: str, flags: int, user: tuple[int, int, list[int]] | None = None) -> int:
    """Let an init open a file as a command of its sandbox could, and return the descriptor; the init is used up.

    With `O_CREAT` the folders above are made. Raises `OSError` as `open` does, and `LaunchError` if the init is gone.
    """
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    try:
        send(init.channel, {"open": (os.fsencode(path), flags), "user": user})
        loop.add_reader(init.channel, answered.set)
        await answered.wait()
        reply = receive(init.channel)
        if reply.kind == b"F":
            await _ended(init, answered, reply.fds)
    except OSError as error:
        raise LaunchError(LOST) from error
    finally:
        loop.remove_reader(init.channel)
        init.close()
    if reply.kind == b"F":
        return reply.fds[0]
    number, step, failed = parse_failure(reply.body) if reply.kind == b"E" else (0, "", "")
    if step == "open" and number:
        raise OSError(number, os.strerror(number), failed)
    raise LaunchError(explain(reply.body) if reply.kind == b"E" else LOST)


async def _ended(init: InitProcess, readable: asyncio.Event, fds: Sequence[int]) -> None:
    """Wait until an init has let go of the files that it has sent; close them if nobody waits any more."""
    try:
        while not _said_all(init):
            readable.clear()
            await readable.wait()
    except asyncio.CancelledError:
        for fd in fds:
            os.close(fd)
        raise


def _said_all(init: InitProcess) -> bool:
    """Tell whether an init has closed its end of the channel."""
    try:
        return not receive(init.channel).kind
    except BlockingIOError:
        return False


def request_of(argv: Sequence[str], env: Mapping[str, str], cwd: str, limits: Limits) -> dict[str, object]:
    """Build the message that starts a command, without its covers. Raises `LaunchError` for what no kernel accepts."""
    if not argv:
        raise LaunchError("the command is empty")
    texts = (*argv, *env, *env.values(), cwd)
    if any("\0" in text for text in texts):
        raise LaunchError("the command, its environment or its folder contains a NUL character")
    try:
        os.fsencode("".join(texts))
    except UnicodeEncodeError as error:
        raise LaunchError("the command, its environment or its folder contains half of a surrogate pair") from error
    return {
        "argv": [os.fsencode(word) for word in argv],
        "env": {os.fsencode(name): os.fsencode(value) for name, value in confined_environment(env).items()},
        "cwd": os.fsencode(cwd),
        "limits": [(getattr(resource, name), value) for name, value in limits.resources().items()],
    }


def last_words(init: InitProcess) -> str | None:
    """Explain why an init that takes no command any more has ended; None if it did not say."""
    try:
        reply = receive(init.channel)
    except OSError:
        return None
    return explain(reply.body) if reply.kind == b"E" else None


def wire_covers(covers: Iterable[Cover]) -> list[tuple[str, bytes, bytes]]:
    return [(cover.kind, os.fsencode(cover.path), os.fsencode(cover.content)) for cover in covers]


def _refused(body: bytes) -> LaunchError:
    """Return the error of a command that could not be started."""
    number, step, _ = parse_failure(body)
    error = LaunchError(explain(body))
    error.number = number if step in ("exec", "chdir") else None
    return error


def explain(body: bytes) -> str:
    """Explain an init's failure to the model and the user."""
    number, step, path = parse_failure(body)
    if step == "mount" and path == "/proc":
        return HIDDEN_PROC.format(os.strerror(number))
    if step == "chdir":
        return f"cannot use the working directory {path}: {os.strerror(number)}"
    if step == "exec" and number == errno.ENOENT:
        return f"program not found: {path}"
    if step == "exec" and number == errno.E2BIG:
        return "the command line is too long for the kernel: write long text to a file first"
    if step == "exec":
        return f"cannot run {path}: {os.strerror(number)}"
    return f"the sandbox could not be built: {failure_text(body)}"


@cache
def kernel_version() -> tuple[int, ...]:
    """Return the kernel's version. Before 6.14 a bound on process numbers applies to the whole machine."""
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(char for char in minor if char.isdigit()) or 0)
