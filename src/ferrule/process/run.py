"""Run one command to its end. A call ends when its process does, not when its pipes close."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence

import msgspec

from ferrule.process.capture import CAPTURE_BYTES, Captured, HeadTail
from ferrule.process.launcher import Child, ExitStatus, Launcher, Limits, Pipes, Stdio
from ferrule.process.outputs import OnOutput, Outputs, capped
from ferrule.process.streams import Writer
from ferrule.sync import uninterrupted

TERM_GRACE = 0.5
"""Seconds between TERM and KILL."""
DRAIN_GRACE = 0.2
"""Seconds after the exit during which a helper of the command (`> >(tee log)`) may still write."""
UNDYING_GRACE = 2.0
"""Seconds to wait for the exit after KILL: another user's program (`sudo`) cannot be killed."""
TIMEOUT_EXIT_CODE = 124
"""The exit code of timeout(1), which models recognise."""

_PIPES = Pipes()
_LIMITS = Limits()


class Completed(msgspec.Struct, frozen=True):
    """The result of a command. `output` is stdout and stderr in order of arrival; `notice` names processes that
    outlived it."""

    status: ExitStatus
    stdout: Captured
    stderr: Captured
    output: Captured
    duration: float
    timed_out: bool
    notice: str | None

    @property
    def exit_code(self) -> int:
        """124 after a timeout, 128 + n after signal n, otherwise the command's own exit code."""
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
    captured: HeadTail | None = None,
    grace: float = TERM_GRACE,
) -> Completed:
    """Run `argv` and wait for its exit.

    Without `stdin`, a command on pipes reads `/dev/null`. On timeout (`timeout_ms`) or cancellation of the caller the
    whole tree is ended: TERM, `grace` seconds, KILL. Raises `LaunchError` if it cannot start, and what `on_output`
    raises; `captured` then holds the output so far.
    """
    if stdin is not None and isinstance(stdio, Pipes):
        stdio = msgspec.structs.replace(stdio, stdin=True)
    started = time.monotonic()
    child = await launcher.launch(argv, env, cwd, stdio, limits)
    outputs = Outputs(child, capped(on_output), capture_bytes, captured)
    writer = open_writer(child)
    try:
        if writer and stdin is not None:
            writer.write(stdin)
            if isinstance(stdio, Pipes):
                writer.finish()
        status, timed_out = await exit_of(child, timeout_ms, grace)
        await outputs.finish(DRAIN_GRACE)
        notice = await child.leftovers(output_held=not outputs.reached_end)
    except (Exception, asyncio.CancelledError):
        await uninterrupted(child.kill_tree(grace))
        raise
    finally:
        outputs.close()
        if writer:
            writer.close()
    duration = time.monotonic() - started
    return Completed(status, *outputs.captured(), duration, timed_out, notice)


async def exit_of(child: Child, timeout_ms: int | None, grace: float = TERM_GRACE) -> tuple[ExitStatus, bool]:
    """Return the exit status, and whether a timeout forced it."""
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await child.wait(), False
    except TimeoutError:
        await child.kill_tree(grace)
    try:
        async with asyncio.timeout(UNDYING_GRACE):
            return await child.wait(), True
    except TimeoutError:
        return ExitStatus(signal=signal.SIGKILL), True


def open_writer(child: Child) -> Writer | None:
    """Create the writer for a child's stdin. A PTY's master is duplicated so that reader and writer each own a
    descriptor."""
    if child.stdin is None:
        return None
    return Writer(os.dup(child.stdin) if child.stdin == child.stdout else child.stdin)
