"""The sandbox of one session, which is a `Launcher`: the entry to this room."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.process.launcher import Child, Launcher, LaunchError, Limits, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.permissions import SandboxPolicy
from ferrule.sandbox.environment import NESTED, is_inside
from ferrule.sandbox.placeholders import sweep
from ferrule.sandbox.plan import ConfinementPlan, Level
from ferrule.sandbox.policy import plan_confinement
from ferrule.sandbox.probe import TITLES, ClosableLauncher, check, has_landlock, openers
from ferrule.sandbox.protection import Protection, Report
from ferrule.sandbox.watched import Remarks, WatchedChild, watched
from ferrule.sandbox.way_out import SessionWay

if TYPE_CHECKING:
    from ferrule.sandbox.local_way import Decider

NETWORK_OFF_VARIABLE = "CODEX_SANDBOX_NETWORK_DISABLED"
"""Set to 1 for commands without a network; programs written for agents look for this name."""

NO_STATE = "the sandbox could not be built: it cannot keep its state in {} ({}); set FERRULE_HOME to a writable folder"
NOTHING_ENFORCED = (
    "this machine offers no sandbox, so commands are not started in this mode ({}); `ferrule doctor` says more, and "
    "-s danger-full-access runs them with all your rights"
)

LIST_NOT_ENFORCED = (
    "this machine cannot let commands reach some domains and no others, so commands are not started ({}): set "
    "sandbox_workspace_write.network_access to true or false"
)


async def open_launcher(
    policy: SandboxPolicy,
    cwd: str,
    home: Path,
    *,
    unconfined_accepted: bool = False,
    env: Mapping[str, str] = os.environ,
    report: Report | None = None,
    decider: "Decider | None" = None,
) -> "Sandbox":
    """Open the sandbox of a session that works in `cwd`; close it. Waits for nothing: it is built in the background.

    `home` is Ferrule's own folder. `unconfined_accepted`: the user's setting that commands may run with all rights on a
    machine that can confine nothing. `report` receives sentences for the user on what commands did.
    `decider` decides instead of the list of domains alone. Raises `UsageError` as `plan_confinement` does.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    protection = Protection(plan_confinement(policy, cwd, str(home), env), home, report)
    way_out = None
    if protection.plan.reach is not None:
        from ferrule.sandbox.local_way import ListOnly, LocalWay

        reach = protection.plan.reach
        way_out = LocalWay(reach, decider or ListOnly(reach.names, report))
    return Sandbox(protection, unconfined_accepted=unconfined_accepted, way_out=way_out)


class Sandbox:
    """Start the confined commands of one session, on one event loop. Raises `LaunchError` where nothing confines."""

    def __init__(
        self,
        protection: Protection,
        *,
        unconfined_accepted: bool = False,
        levels: Sequence[Level] = tuple(Level),
        interpreter: tuple[str, ...] = (),
        way_out: SessionWay | None = None,
        container: Callable[[], ClosableLauncher] | None = None,
    ) -> None:
        """`container` opens the launcher of a container, in place of what the machine offers."""
        self.plan: ConfinementPlan = protection.plan
        self._protection = protection
        self._home = protection.home
        self._unconfined_accepted = unconfined_accepted
        self._levels = levels
        self._interpreter = interpreter
        self._way_out = way_out
        self._container = container
        self._launcher: ClosableLauncher | None = None
        self.landlock = True
        self._opening = asyncio.create_task(self._open())
        self._running: set[WatchedChild] = set()
        self._starting = 0
        self._none_starts = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user about the policy."""
        return self.plan.warnings

    async def level(self) -> Level:
        """Wait until the sandbox is built and return its level, for the session's first event."""
        await asyncio.wait([self._opening])
        if self._opening.cancelled():
            raise LaunchError("the sandbox is closed")
        return self._opening.result()

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        return await self.launch_by(None, argv, env, cwd, stdio, limits)

    async def launch_by(
        self,
        launcher: Launcher | None,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        stdio: Stdio,
        limits: Limits,
    ) -> Child:
        """Start a command by another launcher in the same network; None is the sandbox's own. Raises `LaunchError`."""
        try:
            await self.level()
        except LaunchError as error:
            raise LaunchError(str(error)) from error
        if self._closing is not None or self._launcher is None:
            raise LaunchError("the sandbox is closed")
        remarks: Remarks = tuple
        if self._way_out is not None:
            env = {**env, **self._way_out.environment}
            remarks = partial(self._way_out.remarks, self._way_out.mark())
        elif not self.plan.network:
            env = {**env, NETWORK_OFF_VARIABLE: "1"}
        self._starting += 1
        try:
            launcher = launcher or self._launcher
            child = await watched(self._protection, launcher, argv, env, cwd, stdio, limits, remarks)
            self._running.add(child)
            child.aftermath.add_done_callback(lambda _: self._running.discard(child))
        finally:
            self._starting -= 1
            if not self._starting:
                self._none_starts.set()
        return child

    async def close(self) -> None:
        """End every command that still runs and wait for the look after each. Goes on even if cancelled."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        while self._starting:
            self._none_starts.clear()
            await self._none_starts.wait()
        for child in list(self._running):
            await child.kill_tree()
            await asyncio.wait([child.aftermath])
        self._opening.cancel()
        await asyncio.wait([self._opening])
        if not self._opening.cancelled():
            self._opening.exception()  # was raised to whoever asked for the level
        if self._launcher is not None:
            launcher, self._launcher = self._launcher, None
            await launcher.close()
        if self._way_out is not None:
            await self._way_out.aclose()
        await self._protection.finish()

    async def _open(self) -> Level:
        try:
            return await self._best_level()
        except OSError as error:
            raise LaunchError(NO_STATE.format(self._home, error.strerror)) from error

    async def _best_level(self) -> Level:
        if is_inside():
            raise LaunchError(NESTED)
        state_dir = self._home / "sandbox"
        await asyncio.to_thread(sweep, state_dir)
        await self._protection.look()
        if self._container is not None:
            self._launcher = self._container()
            await check(self._launcher, self._home)
            self.landlock = await has_landlock(self._launcher)
            return Level.CONTAINER
        failures = []
        for level, opener in openers(
            self.plan, state_dir, lambda: self._protection.boundary, self._interpreter, self._way_out
        ).items():
            if level not in self._levels:
                continue
            if self._way_out is not None and level is not Level.NAMESPACES:
                break
            try:
                self._launcher = opener()
                await check(self._launcher, self._home)
            except LaunchError as error:
                failures.append(f"{TITLES[level]}: {error}")
                if self._launcher is not None:
                    await self._launcher.close()
                    self._launcher = None
            else:
                self.landlock = await has_landlock(self._launcher)
                if level is Level.LANDLOCK:
                    await self._protection.hold()
                return level
        if self._way_out is not None:
            raise LaunchError(LIST_NOT_ENFORCED.format("; ".join(failures) or "this system has no network namespaces"))
        if not self._unconfined_accepted:
            raise LaunchError(NOTHING_ENFORCED.format("; ".join(failures)))
        self._launcher = _Unconfined()
        return Level.NONE


class _Unconfined(PlainLauncher):
    """The launcher at level `NONE`, which the user accepted."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""
