"""The entry: the sandbox of one session, which is a `Launcher`."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ferrule.process.launcher import Child, ExitStatus, LaunchError, Limits, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.permissions import SandboxPolicy
from ferrule.sandbox.linux.landlock_only import Snapshot
from ferrule.sandbox.plan import PROTECTED_NAMES, ConfinementPlan, Level
from ferrule.sandbox.policy import plan_confinement
from ferrule.sandbox.probe import TITLES, ClosableLauncher, check, openers
from ferrule.sandbox.protect import sweep
from ferrule.sandbox.repositories import RepositoryWatch

NETWORK_OFF_VARIABLE = "CODEX_SANDBOX_NETWORK_DISABLED"
"""Set to 1 for commands without a network; the name that programs written for agents look for."""

NOTHING_ENFORCED = (
    "this machine offers no sandbox, so commands are not started in this mode ({}); `ferrule doctor` says more, and "
    "-s danger-full-access runs them with all your rights"
)


async def open_launcher(
    policy: SandboxPolicy,
    cwd: str,
    home: Path,
    *,
    unconfined_accepted: bool = False,
    env: Mapping[str, str] = os.environ,
) -> "Sandbox":
    """The sandbox of a session that works in `cwd`; close it. Waits for nothing: it is built in the background.

    `home` is Ferrule's own folder. `unconfined_accepted`: the user's setting that commands may run with all rights on
    a machine that can confine nothing. Raises `UsageError` as `plan_confinement` does.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Sandbox(plan_confinement(policy, cwd, str(home), env), home, unconfined_accepted=unconfined_accepted)


class Sandbox:
    """Starts commands confined by one plan. For one event loop. Raises `LaunchError` where nothing can be enforced."""

    def __init__(
        self,
        plan: ConfinementPlan,
        home: Path,
        *,
        unconfined_accepted: bool = False,
        levels: Sequence[Level] = tuple(Level),
        interpreter: tuple[str, ...] = (),
    ) -> None:
        self.plan = plan
        self._home = home
        self._unconfined_accepted = unconfined_accepted
        self._levels = levels
        self._interpreter = interpreter
        self._watch = RepositoryWatch(plan, home / "quarantine")
        self._inspecting = asyncio.Lock()
        self._launcher: ClosableLauncher | None = None
        self._opening = asyncio.create_task(self._open())
        self._running: set[WatchedChild] = set()
        self._closed = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about the policy for the user."""
        return self.plan.warnings

    async def level(self) -> Level:
        """What is enforced, for the session's first event. Waits until the sandbox stands."""
        return await asyncio.shield(self._opening)

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        try:
            level = await self.level()
        except LaunchError as error:
            raise LaunchError(str(error)) from error
        if self._closed or self._launcher is None:
            raise LaunchError("the sandbox is closed")
        if not self.plan.network:
            env = {**env, NETWORK_OFF_VARIABLE: "1"}
        after = await self._before(level)
        child = WatchedChild(await self._launcher.launch(argv, env, cwd, stdio, limits), after)
        self._running.add(child)
        child.aftermath.add_done_callback(lambda _: self._running.discard(child))
        return child

    async def close(self) -> None:
        """Ends every command that still runs, and waits for what is done after each."""
        self._closed = True
        for child in list(self._running):
            await child.kill_tree()
            await child.aftermath
        self._opening.cancel()
        with suppress(asyncio.CancelledError, LaunchError):
            await self._opening
        if self._launcher is not None:
            launcher, self._launcher = self._launcher, None
            await launcher.close()

    async def _open(self) -> Level:
        try:
            return await self._best_level()
        except OSError as error:
            raise LaunchError(f"the sandbox could not be built: {error}") from error

    async def _best_level(self) -> Level:
        state_dir = self._home / "sandbox"
        await asyncio.to_thread(self._look_around, state_dir)
        failures = []
        for level, opener in openers(self.plan, state_dir, self._watch.protected, self._interpreter).items():
            if level not in self._levels:
                continue
            try:
                self._launcher = opener()
                await check(self._launcher, self._home)
            except LaunchError as error:
                failures.append(f"{TITLES[level]}: {error}")
                if self._launcher is not None:
                    await self._launcher.close()
                    self._launcher = None
            else:
                return level
        if not self._unconfined_accepted:
            raise LaunchError(NOTHING_ENFORCED.format("; ".join(failures)))
        self._launcher = _Unconfined()
        return Level.NONE

    def _look_around(self, state_dir: Path) -> None:
        sweep(state_dir)
        self._watch.start()

    async def _before(self, level: Level) -> "_After":
        """What is done before a command; returns what is done after it."""
        if level is not Level.LANDLOCK:
            return self._inspect
        names = [f"{root.path}/{name}" for root in self.plan.roots for name in PROTECTED_NAMES]
        snapshot = await asyncio.to_thread(Snapshot.take, (*names, *self._watch.protected, *self.plan.read_only))

        async def after() -> tuple[str, ...]:
            undone = await asyncio.to_thread(snapshot.restore, self._home / "quarantine")
            return (*undone, *await self._inspect())

        return after

    async def _inspect(self) -> tuple[str, ...]:
        if not self.plan.roots:
            return ()
        async with self._inspecting:
            return await asyncio.to_thread(self._watch.inspect)


_After = Callable[[], Awaitable[tuple[str, ...]]]


class WatchedChild:
    """A confined child. Its `aftermath` ends with what was done about repositories that it touched, a sentence each."""

    def __init__(self, child: Child, after: _After) -> None:
        self._child = child
        self.aftermath = asyncio.create_task(self._look_after(after))

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
        """Also says what was moved to quarantine or put back."""
        left = await self._child.leftovers(output_held)
        return " ".join(([left] if left else []) + list(await asyncio.shield(self.aftermath))) or None

    def resize(self, rows: int, columns: int) -> None:
        self._child.resize(rows, columns)

    async def _look_after(self, after: _After) -> tuple[str, ...]:
        with suppress(LaunchError):  # the waiter of the command gets it
            await self._child.wait()
        return await after()


class _Unconfined(PlainLauncher):
    """Level `NONE`, accepted by the user."""

    async def close(self) -> None:
        """Nothing is held."""
