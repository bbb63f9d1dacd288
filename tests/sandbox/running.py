"""Running a command through a launcher and reading what it says."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ferrule.process.launcher import Child, ExitStatus, Launcher, Limits, Pipes, Stdio

SECONDS = 30.0


@dataclass(frozen=True)
class Outcome:
    status: ExitStatus
    output: str
    left: str | None


async def run(
    launcher: Launcher,
    command: str | Sequence[str],
    cwd: str,
    *,
    stdio: Stdio | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> Outcome:
    """A shell line or an argv; stdout and stderr together."""
    argv = ["/bin/bash", "-c", command] if isinstance(command, str) else command
    child = await launcher.launch(argv, env or dict(os.environ), cwd, stdio or Pipes(merge=True), Limits())
    return await finish(child, seconds)


async def finish(child: Child, seconds: float = SECONDS) -> Outcome:
    try:
        async with asyncio.timeout(seconds):
            output = await asyncio.to_thread(read_all, child.stdout)
            status = await child.wait()
            left = await child.leftovers(False)
    finally:
        for fd in {child.stdin, child.stdout, child.stderr} - {None}:
            os.close(fd)  # type: ignore[arg-type]
    return Outcome(status, output, left)


def read_all(fd: int) -> str:
    parts = []
    try:
        while part := os.read(fd, 1 << 16):
            parts.append(part)
    except OSError:  # a terminal whose other end is closed
        pass
    return b"".join(parts).decode("utf-8", "replace")
