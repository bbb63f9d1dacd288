"""Run one command to its end. The end of a call is the end of its process and not of its pipes."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ferrule.process.capture import CAPTURE_BYTES, Captured, HeadTail
from ferrule.process.launcher import Child, ExitStatus, Launcher, Limits, Pipes, Stdio
from ferrule.process.streams import Reader, Writer

TERM_GRACE = 0.5
"""Seconds between TERM and KILL."""
DRAIN_GRACE = 0.2
"""Seconds after the exit in which a helper of the command (`> >(tee log)`) may still write."""
TIMEOUT_EXIT_CODE = 124
MAX_DELTAS = 10_000
"""Pieces of live output for one command; what comes later is captured only."""

StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, bytes], None]

_PIPES = Pipes()
_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command did. `output` is stdout and stderr in order of arrival; `notice` tells what outlived it."""

    status: ExitStatus
    stdout: Captured
    stderr: Captured
    output: Captured
    duration: float
    timed_out: bool
    notice: str | None

    @property
    def exit_code(self) -> int:
        """124 after a timeout, 128 + n after signal n, else the command's own."""
        return TIMEOUT_EXIT_CODE if self.timed_out else self.status.shell_code


async def run(
    launcher: Launcher,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    stdin: bytes | None = None,
    timeout_ms: int | None = None,
    stdio: Stdio = _PIPES,
    limits: Limits = _LIMITS,
    on_output: OnOutput | None = None,
    capture_bytes: int = CAPTURE_BYTES,
) -> Completed:
    """Run `argv` and wait for its exit.

    Without `stdin` a command on pipes reads `/dev/null`. After `timeout_ms`, and when the caller is cancelled, the
    whole tree is ended: TERM, `TERM_GRACE`, KILL. Raises `LaunchError` if it cannot start, and what `on_output` raises.
    """
    if stdin is not None and isinstance(stdio, Pipes):
        stdio = replace(stdio, stdin=True)
    started = time.monotonic()
    child = await launcher.launch(argv, env, cwd, stdio, limits)
    outputs = Outputs(child, on_output, capture_bytes)
    writer = open_writer(child)
    try:
        if writer and stdin is not None:
            writer.write(stdin)
            if isinstance(stdio, Pipes):
                writer.finish()
        status, timed_out = await _exit(child, timeout_ms)
        await outputs.finish(DRAIN_GRACE)
        notice = await child.leftovers(output_held=not outputs.reached_end)
    except BaseException:
        await uninterrupted(child.kill_tree(TERM_GRACE))
        raise
    finally:
        outputs.close()
        if writer:
            writer.close()
    duration = time.monotonic() - started
    return Completed(status, *outputs.captured(), duration, timed_out, notice)


async def _exit(child: Child, timeout_ms: int | None) -> tuple[ExitStatus, bool]:
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await child.wait(), False
    except TimeoutError:
        await child.kill_tree(TERM_GRACE)
        return await child.wait(), True


class Outputs:
    """Reads what a child writes: captured by stream and together, in order of arrival, and handed on live."""

    def __init__(self, child: Child, on_output: OnOutput | None, capture_bytes: int) -> None:
        self._on_output = on_output
        self._deltas = 0
        self._separate = child.stderr not in (None, child.stdout)
        self._both = HeadTail(capture_bytes)
        self._stdout = HeadTail(capture_bytes)
        self._stderr = HeadTail(capture_bytes)
        self._readers = [Reader(child.stdout, self._stdout_read if self._separate else self._only_read)]
        if child.stderr is not None and self._separate:
            self._readers.append(Reader(child.stderr, self._stderr_read))

    @property
    def reached_end(self) -> bool:
        return all(reader.reached_end for reader in self._readers)

    async def finish(self, grace: float) -> None:
        await asyncio.gather(*(reader.finish(grace) for reader in self._readers))

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def captured(self) -> tuple[Captured, Captured, Captured]:
        """stdout, stderr, both together."""
        both = self._both.captured()
        if not self._separate:
            return both, Captured(b""), both
        return self._stdout.captured(), self._stderr.captured(), both

    def _only_read(self, data: bytes) -> None:
        self._both.write(data)
        self._tell("stdout", data)

    def _stdout_read(self, data: bytes) -> None:
        self._stdout.write(data)
        self._only_read(data)

    def _stderr_read(self, data: bytes) -> None:
        self._stderr.write(data)
        self._both.write(data)
        self._tell("stderr", data)

    def _tell(self, stream: StreamName, data: bytes) -> None:
        if self._on_output and self._deltas < MAX_DELTAS:
            self._deltas += 1
            self._on_output(stream, data)


def open_writer(child: Child) -> Writer | None:
    """The writer of a child's stdin. A PTY's master is duplicated, so that reader and writer each own a descriptor."""
    if child.stdin is None:
        return None
    return Writer(os.dup(child.stdin) if child.stdin == child.stdout else child.stdin)


async def uninterrupted(work: Coroutine[None, None, None]) -> None:
    """Finish `work` even if the waiting task is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled:
        raise cancelled
