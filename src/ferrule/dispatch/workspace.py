"""The confined side of a session's workspace: the sandboxed launcher and the files that may be written."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.dispatch.unfinished import PatchJournal
from ferrule.lookup import Places, safe_search
from ferrule.patch.files import FileLayer, PlainFiles
from ferrule.process.launcher import Child, Launcher, LaunchError, Limits, Stdio
from ferrule.protocol.events import SandboxStatus
from ferrule.protocol.permissions import ReadOnly, SandboxPolicy, WorkspaceWrite
from ferrule.sandbox.boundary import Boundary
from ferrule.sandbox.files import ConfinedFiles
from ferrule.sandbox.plan import ConfinementPlan
from ferrule.sandbox.policy import command_places, plan_confinement
from ferrule.sandbox.protection import Protection, Report
from ferrule.sandbox.watched import WatchedLauncher
from ferrule.tools.context import Access
from ferrule.tools.files import Files

if TYPE_CHECKING:
    from ferrule.sandbox.sandbox import Sandbox


class _WithSafeSearch:
    """A launcher whose PATH has no folder that commands can write, so that programs looked up by name (git's ssh)
    never come from there."""

    def __init__(self, launcher: Launcher, places: Places) -> None:
        self._launcher = launcher
        self._places = places

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """See `Launcher.launch`."""
        searched = {**env, "PATH": safe_search(env.get("PATH"), self._places)}
        return await self._launcher.launch(argv, searched, cwd, stdio, limits)


class Workspace:
    """The session's only workspace, and its confining `Launcher`. The sandbox is built by `warm_up`, or on first
    use.

    `report` is told what commands left behind in repositories, and what cannot be checked.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        cwd: str,
        home: str,
        *,
        unconfined_accepted: bool = False,
        env: Mapping[str, str] = os.environ,
        report: Report | None = None,
    ) -> None:
        self.plain_files = PlainFiles()
        self.readable_files: FileLayer = ConfinedFiles(ConfinementPlan())
        self.journal = PatchJournal(home)
        self._protection: Protection | None = None
        if isinstance(policy, ReadOnly | WorkspaceWrite):
            plan = plan_confinement(policy, cwd, home, env)
            self._protection = protection = Protection(plan, Path(home), report)
            self._confined_files = ConfinedFiles(plan, lambda: protection.boundary)
        self.places = command_places(policy, cwd, home, env)
        self._home = Path(home)
        self._unconfined_accepted = unconfined_accepted
        self._sandbox: Sandbox | None = None

    @property
    def plan(self) -> ConfinementPlan | None:
        """The confinement; None if nothing is confined."""
        return None if self._protection is None else self._protection.plan

    @property
    def boundary(self) -> Boundary | None:
        """What may be written, as of the last check; None if nothing is confined."""
        return None if self._protection is None else self._protection.boundary

    async def look(self) -> Boundary | None:
        """Return what may be written now; None if nothing is confined."""
        return None if self._protection is None else await self._protection.look()

    @property
    def writable_files(self) -> PlainFiles:
        """The files that may be written without asking anybody."""
        return self.plain_files if self._protection is None else self._confined_files

    def unconfined(self, plain: Launcher) -> Launcher:
        """Return `plain` for commands that leave the sandbox: their files count as a command's too."""
        return plain if self._protection is None else WatchedLauncher(plain, self._protection)

    def freed(self, plain: Launcher) -> Launcher:
        """Return `plain` for commands that a rule of the user exempts."""
        return _WithSafeSearch(plain, self.places)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the roots for the user."""
        return () if self.plan is None else self.plan.warnings

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """Start a confined process. Raises `LaunchError`, also if no sandbox is available."""
        return await (await self._opened()).launch(argv, env, cwd, stdio, limits)

    def access(self, cwd: str) -> Access:
        """Return the confined means of an attempt."""
        return Access(self, Files(self._confined_files, cwd, journal=self.journal), sandboxed=True)

    async def warm_up(self) -> None:
        """Build the sandbox now, while the model thinks. Errors surface at the first launch."""
        if self.plan is not None:
            with suppress(LaunchError):
                await self._opened()

    async def status(self) -> SandboxStatus:
        """Return the state of the sandbox. Waits until it is ready, or known to be unavailable."""
        from ferrule.sandbox.plan import Level
        from ferrule.sandbox.probe import HOLES, TITLES, title

        if self.plan is None:
            return SandboxStatus(level=TITLES[Level.NONE], not_stopped=HOLES[Level.NONE])
        try:
            sandbox = await self._opened()
            level = await sandbox.level()
        except LaunchError as error:
            return SandboxStatus(level=TITLES[Level.NONE], reduced=True, problem=str(error))
        reduced = level not in (Level.NAMESPACES, Level.SEATBELT)
        shown = title(level, landlock=sandbox.landlock)
        return SandboxStatus(level=shown, not_stopped=HOLES[level], reduced=reduced)

    async def _opened(self) -> "Sandbox":
        from ferrule.sandbox.sandbox import NO_STATE, Sandbox

        if self._sandbox is None:
            assert self._protection is not None
            try:
                self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._sandbox = Sandbox(self._protection, unconfined_accepted=self._unconfined_accepted)
            except OSError as error:
                raise LaunchError(NO_STATE.format(self._home, error.strerror)) from error
        return self._sandbox

    async def close(self) -> None:
        """End the sandbox and everything that runs in it."""
        if self._sandbox is not None:
            await self._sandbox.close()
        if self._protection is not None:
            await self._protection.finish()
            self._confined_files.close()
