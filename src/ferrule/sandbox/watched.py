"""Run a command, confined or not, between two looks at the repositories around it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from ferrule.process.launcher import Child, ExitStatus, Launcher, LaunchError, Limits, Stdio
from ferrule.sandbox.protection import Protection

Remarks = Callable[[], Iterable[str]]


async def watched(
    protection: Protection,
    launcher: Launcher,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdio: Stdio,
    limits: Limits,
    remarks: Remarks = tuple,
) -> "WatchedChild":
    """Start a command with a look before and after it. `remarks` are called when it has ended. Raises `LaunchError`."""
    await protection.began()
    try:
        child = await launcher.launch(argv, env, cwd, stdio, limits)
    except BaseException:
        await protection.ended()
        raise
    return WatchedChild(child, protection, remarks)


class WatchedLauncher:
    """A launcher for commands with the user's rights: repositories that they make count as ours, too."""

    def __init__(self, launcher: Launcher, protection: Protection) -> None:
        self._launcher = launcher
        self._protection = protection

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """See `watched`."""
        return await watched(self._protection, self._launcher, argv, env, cwd, stdio, limits)


class WatchedChild:
    """A child whose `aftermath` returns what it left behind, one sentence each. `remarks` returns what else is to be
    said of it."""

    def __init__(self, child: Child, protection: Protection, remarks: Remarks = tuple) -> None:
        self._child = child
        self._remarks = remarks
        self.aftermath = asyncio.create_task(self._look_after(protection))

    @property
    def stdin(self) -> int | None:
        return self._child.stdin

    @property
    def stdout(self) -> int:
        return self._child.stdout

    @property
    def stderr(self) -> int | None:
        return self._child.stderr

    async def wait(self) -> ExitStatus:
        return await self._child.wait()

    async def interrupt(self) -> None:
        await self._child.interrupt()

    async def kill_tree(self, grace: float = 0.0) -> None:
        await self._child.kill_tree(grace)

    async def leftovers(self, output_held: bool) -> str | None:
        """Describe what the command left behind, and what git would run in repositories that it made or changed."""
        left = await self._child.leftovers(output_held)
        aftermath = await asyncio.shield(self.aftermath)
        return " ".join([*([left] if left else []), *aftermath, *self._remarks()]) or None

    def resize(self, rows: int, columns: int) -> None:
        self._child.resize(rows, columns)

    async def _look_after(self, protection: Protection) -> tuple[str, ...]:
        try:
            with suppress(LaunchError):  # raised to whoever waits for the command
                await self._child.wait()
        finally:
            said = await protection.ended()
        return said
