"""A process that outlives the call that started it; later calls collect its output, write to it and interrupt it."""

import asyncio
import signal
import termios
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ferrule.process.capture import CAPTURE_BYTES, Captured, HeadTail
from ferrule.process.launcher import Child, ExitStatus, Launcher, LaunchError, Limits, Pipes, Pty, Stdio
from ferrule.process.outputs import OnOutput, Outputs, StreamName, capped
from ferrule.process.run import TERM_GRACE, TIMEOUT_EXIT_CODE, UNDYING_GRACE, exit_of, open_writer
from ferrule.protocol.errors import FerruleError
from ferrule.sync import uninterrupted

EXIT_GRACE = 0.05
"""Seconds after the exit during which output may still arrive."""
MAX_UNSENT = 4 * 1024 * 1024
"""Bytes of input that may be queued for a process that does not read."""
TERMINAL_LINE_BYTES = 4095
"""In line mode a terminal keeps this much of a line and silently drops the rest (Linux n_tty; macOS 1024)."""
INTERRUPT = b"\x03"

MIN_YIELD_MS, MAX_YIELD_MS = 250, 30_000
"""A shorter call would see nothing yet; a longer one leaves the user without news. Models know these bounds."""
MIN_POLL_MS, MAX_POLL_MS = 5_000, 300_000
"""The same bounds for a call that only waits: each one costs a request to the model."""

_MERGED = Pipes(merge=True)
_LIMITS = Limits()


class StdinClosed(FerruleError):
    """Input was sent to a process that does not accept any; the text says what to do instead."""


class Ended(msgspec.Struct, frozen=True):
    """The end of a session's process. `transcript` is its whole output; `notice` names what outlived it."""

    status: ExitStatus
    transcript: Captured
    duration: float
    timed_out: bool
    notice: str | None

    @property
    def exit_code(self) -> int:
        """124 after a timeout, 128 + n after signal n, otherwise the process's own exit code."""
        return TIMEOUT_EXIT_CODE if self.timed_out else self.status.shell_code


class Collected(msgspec.Struct, frozen=True):
    """The output since the last collection, how the process ended (None while it runs), and how long the wait took."""

    output: Captured
    ended: Ended | None
    wall_seconds: float
    unsent: int
    """Bytes of input that the process has not read yet."""


def clamp_yield(yield_ms: int, poll: bool = False) -> int:
    """Clamp how long a call may wait: 250 to 30,000 ms, or 5,000 to 300,000 for a `poll`."""
    low, high = (MIN_POLL_MS, MAX_POLL_MS) if poll else (MIN_YIELD_MS, MAX_YIELD_MS)
    return max(low, min(yield_ms, high))


class Session:
    """A running process. Its output is read continuously, so it never blocks until the next collection."""

    def __init__(self, child: Child, stdio: Stdio, timeout_ms: int | None, on_output: OnOutput | None) -> None:
        self._child = child
        self._is_terminal = isinstance(stdio, Pty)
        self._timeout_ms = timeout_ms
        self._started = time.monotonic()
        self._pending = HeadTail()
        self._deltas = capped(on_output)
        self._outputs = Outputs(child, self._read, CAPTURE_BYTES)
        self._writer = open_writer(child)
        self._line_bytes = 0
        self._done = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self.ended: Ended | None = None

    @classmethod
    async def start(
        cls,
        launcher: Launcher,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdio: Stdio = _MERGED,
        limits: Limits = _LIMITS,
        timeout_ms: int | None = None,
        on_output: OnOutput | None = None,
        on_exit: Callable[[Ended], None] | None = None,
    ) -> "Session":
        """Start `argv` and call `on_exit` when it exits, whoever is waiting. `timeout_ms` ends the whole tree. Raises
        `LaunchError`."""
        child = await launcher.launch(argv, env, cwd, stdio, limits)
        session = cls(child, stdio, timeout_ms, on_output)
        session._watcher = asyncio.create_task(session._watch(on_exit))
        return session

    async def collect(self, yield_ms: int) -> Collected:
        """Wait up to `yield_ms` for the exit and take the output so far. A cancelled wait takes nothing."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(yield_ms / 1000):
                await self._done.wait()
        except TimeoutError:
            pass
        ended = self.ended
        output = self._pending.drain(final=ended is not None)
        return Collected(output, ended, time.monotonic() - started, self._writer.unsent if self._writer else 0)

    async def write(self, data: bytes) -> str | None:
        """Send input, in the background if it has to wait; `Collected.unsent` counts what is still queued.

        `\\x03` alone interrupts, with or without a terminal. Returns a warning if the terminal will truncate a line.
        Raises `StdinClosed`.
        """
        if self.ended:
            raise StdinClosed("failed to write to stdin: the process has ended")
        if data == INTERRUPT and (self._writer is None or self._writer.unsent):
            await self._child.interrupt()
            return None
        if self._writer is None:
            raise StdinClosed("stdin is closed for this session; rerun exec_command with tty=true to keep stdin open")
        if self._writer.unsent + len(data) > MAX_UNSENT:
            raise StdinClosed(
                f"the process does not read: {self._writer.unsent} bytes of input wait, at most {MAX_UNSENT} may; "
                "let it read them (empty input waits), or interrupt it with \\u0003"
            )
        warning = self._long_line(data)
        self._writer.write(data)
        if self._writer.broken:
            raise StdinClosed("failed to write to stdin: the process has closed it")
        return warning

    async def over(self) -> None:
        """Wait until the process has ended and `on_exit` was called."""
        if self._watcher:
            await asyncio.wait({self._watcher})

    def close_stdin(self) -> None:
        """Close the input once queued data is written. For a terminal, send `\\x04` as input instead."""
        if self._writer:
            self._writer.finish()

    async def interrupt(self) -> None:
        """Send SIGINT to the foreground group."""
        await self._child.interrupt()

    def resize(self, rows: int, columns: int) -> None:
        """Change the terminal's size; do nothing without one."""
        self._child.resize(rows, columns)

    async def end(self) -> None:
        """End the whole tree if it still runs, and wait until its end is recorded. Raises what `on_exit` raised."""
        if self.ended is None:
            await self._child.kill_tree(TERM_GRACE)
        if self._watcher:
            if not (await asyncio.wait({self._watcher}, timeout=UNDYING_GRACE))[0]:
                self._watcher.cancel()
                await asyncio.wait({self._watcher})
            if not self._watcher.cancelled():
                self._watcher.result()

    async def _watch(self, on_exit: Callable[[Ended], None] | None) -> None:
        try:
            status, timed_out = await exit_of(self._child, self._timeout_ms)
            await self._outputs.finish(EXIT_GRACE)
            notice = await self._child.leftovers(output_held=not self._outputs.reached_end)
        except LaunchError as error:  # the sandbox around the process was killed, and the process with it
            await self._outputs.finish(EXIT_GRACE)
            status, timed_out, notice = ExitStatus(signal=signal.SIGKILL), False, str(error)
        except (Exception, asyncio.CancelledError):  # a cancellation too: nothing may outlive the loop
            await uninterrupted(self._child.kill_tree())
            raise
        finally:
            self._outputs.close()
            if self._writer:
                self._writer.close()
        duration = time.monotonic() - self._started
        self.ended = Ended(status, self._outputs.captured()[2], duration, timed_out, notice)
        self._done.set()
        if on_exit:
            on_exit(self.ended)

    def _read(self, stream: StreamName, data: bytes) -> None:
        self._pending.write(data)
        if self._deltas:
            self._deltas(stream, data)

    def _long_line(self, data: bytes) -> str | None:
        """Check for a line that is too long, counting across writes because the terminal buffers a whole line."""
        if not self._is_terminal or not self._in_line_mode():
            self._line_bytes = 0
            return None
        lines = data.replace(b"\r", b"\n").split(b"\n")
        lengths = [self._line_bytes + len(lines[0]), *map(len, lines[1:])]
        self._line_bytes = lengths[-1]
        if max(lengths) <= TERMINAL_LINE_BYTES:
            return None
        return (
            f"the terminal keeps {TERMINAL_LINE_BYTES} bytes of a line, and one of {max(lengths)} was sent: its end is "
            "lost unless the program reads in raw mode; send shorter lines or pass the text in a file"
        )

    def _in_line_mode(self) -> bool:
        return not self._outputs.closed and bool(termios.tcgetattr(self._child.stdout)[3] & termios.ICANON)
