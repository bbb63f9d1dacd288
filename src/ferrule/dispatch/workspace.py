"""The confined side of a session's workspace: the sandboxed launcher and the files that may be written."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.dispatch.network import Attempted, NetworkApprovals
from ferrule.dispatch.unfinished import PatchJournal
from ferrule.lookup import Places, safe_search
from ferrule.patch.files import FileLayer, PlainFiles
from ferrule.process.launcher import Child, Launcher, LaunchError, Limits, Stdio
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import SandboxStatus
from ferrule.protocol.permissions import InContainer, InContainerReadOnly, ReadOnly, SandboxPolicy, WorkspaceWrite
from ferrule.sandbox.boundary import Boundary, Cover
from ferrule.sandbox.files import ApprovedFiles, ConfinedFiles
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.policy import command_places, plan_confinement
from ferrule.sandbox.protection import Protection, Report
from ferrule.sandbox.watched import WatchedLauncher
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.files import Files

if TYPE_CHECKING:
    from ferrule.containers.project import ProjectContainer, ProjectLauncher
    from ferrule.sandbox.local_way import Decider, LocalWay
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
        parent: "Workspace | None" = None,
        decider: "Decider | None" = None,
    ) -> None:
        """`parent` is that of the session which started this one: its container is shared, and it closes it. `decider`
        decides what commands reach, instead of the session's user. Raises `UsageError`, and where the policy wants a
        container `ImageError` and `ContainerError`."""
        self._sharing = parent if parent is not None and parent.container is not None else None
        self.container: ProjectContainer | None = (
            _container_of(policy, cwd, home) if self._sharing is None else self._sharing.container
        )
        shown = None if self.container is None else self.container.folders
        self.plain_files: PlainFiles = PlainFiles()
        self.readable_files: FileLayer = ConfinedFiles(ConfinementPlan(), shown=shown)
        self.journal = PatchJournal(home)
        self._protection: Protection | None = None
        if isinstance(policy, ReadOnly | WorkspaceWrite):
            plan = plan_confinement(policy, cwd, home, env)
            self._protection = protection = Protection(plan, Path(home), report)
            self._confined_files = ConfinedFiles(plan, lambda: protection.boundary, shown=shown)
            if shown is not None:
                mounted = ConfinementPlan(tuple(map(Root, shown)), read_only=(os.path.realpath(home),))
                self.plain_files = ApprovedFiles(mounted, shown=shown)
        self.places = command_places(policy, cwd, home, env) if self.plan is None else self.plan.places
        self._home = Path(home)
        self._unconfined_accepted = unconfined_accepted
        listed = self.plan is not None and self.plan.reach is not None
        self.network: NetworkApprovals | None = NetworkApprovals() if listed and decider is None else None
        """Decides what commands reach, where the policy has a list of domains."""
        self._decider: Decider | None = decider or self.network
        self._way: LocalWay | None = None
        self._sandbox: Sandbox | None = None
        self._approved: ProjectLauncher | None = None

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
        """Return `plain` for commands that leave the sandbox: their files count as a command's too. From a container no
        command gets out: there it may write what is protected."""
        if self._protection is None:
            return plain
        return _Approved(self) if self.container is not None else WatchedLauncher(plain, self._protection)

    def freed(self, plain: Launcher) -> Launcher:
        """Return `plain` for commands that a rule of the user exempts."""
        return plain if self.container is not None else _WithSafeSearch(plain, self.places)

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
        files = Files(self._confined_files, cwd, journal=self.journal)
        return Access(self, files, sandboxed=True, remarks=self.remarks())

    def remarks(self) -> Callable[[], Sequence[str]]:
        """Return what tells, when it is called, what the network's bounds have refused from now on."""
        since = 0 if self._way is None else self._way.mark()
        return lambda: () if self._way is None else self._way.remarks(since)

    def attempting(self, ctx: ToolContext) -> "AbstractContextManager[Attempted]":
        """Note that a call runs a command."""
        return nullcontext(Attempted(ctx)) if self.network is None else self.network.attempting(ctx)

    async def launch_approved(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """Start a process in the container that may write protected files, too. Raises `LaunchError`."""
        sandbox = await self._opened()
        await sandbox.level()
        assert self._approved is not None
        return await sandbox.launch_by(self._approved, argv, env, cwd, stdio, limits)

    async def warm_up(self) -> None:
        """Build the sandbox now, while the model thinks. Errors surface at the first launch; a container that cannot be
        started raises `LaunchError`."""
        if self.container is not None:
            await (await self._opened()).level()
        elif self.plan is not None:
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
        reduced = level not in (Level.CONTAINER, Level.NAMESPACES, Level.SEATBELT)
        shown = title(level, landlock=sandbox.landlock)
        return SandboxStatus(level=shown, not_stopped=HOLES[level], reduced=reduced)

    async def _opened(self) -> "Sandbox":
        from ferrule.sandbox.sandbox import NO_STATE, Sandbox

        if self._sandbox is None:
            assert self._protection is not None
            try:
                self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
                opener = None if self.container is None else self._open_container
                self._sandbox = Sandbox(
                    self._protection,
                    unconfined_accepted=self._unconfined_accepted,
                    way_out=self._way_out(),
                    container=opener,
                )
            except UsageError as error:
                raise LaunchError(str(error)) from error
            except OSError as error:
                raise LaunchError(NO_STATE.format(self._home, error.strerror)) from error
        return self._sandbox

    def _way_out(self) -> "LocalWay | None":
        """Open what the policy lets out. Raises `UsageError`."""
        if self._way is not None or self._decider is None or self.plan is None or self.plan.reach is None:
            return self._way
        from ferrule.sandbox.local_way import LocalWay

        first = None if self._sharing is None else self._sharing._way_out()
        way = self._way = LocalWay(self.plan.reach, self._decider, contained=self.container is not None, first=first)
        if self.container is not None and first is None:
            self.container.way_out = way
        return way

    def _open_container(self) -> "ProjectLauncher":
        from ferrule.containers.project import ProjectLauncher

        assert self.container is not None and self._protection is not None
        protection, kept = self._protection, Cover("read", os.path.realpath(self._home))
        shut = () if protection.plan.roots else tuple(Cover("read", folder) for folder in self.container.folders)
        self._approved = ProjectLauncher(self.container, protection, lambda: (kept,))
        return ProjectLauncher(self.container, protection, lambda: (*shut, *protection.boundary.covers))

    async def close(self) -> None:
        """End the sandbox and everything that runs in it."""
        if self.network is not None:
            await self.network.aclose()
        approved, self._approved = self._approved, None
        if approved is not None:
            await approved.close()
        if self._sandbox is not None:
            await self._sandbox.close()
        if self.container is not None and self._sharing is None:
            await self.container.close()
        if self._protection is not None:
            await self._protection.finish()
            self._confined_files.close()
        if isinstance(self.plain_files, ConfinedFiles):
            self.plain_files.close()


class _Approved:
    """The launcher of commands that somebody has approved, in a container."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """See `Workspace.launch_approved`."""
        return await self._workspace.launch_approved(argv, env, cwd, stdio, limits)


def _container_of(policy: SandboxPolicy, cwd: str, home: str) -> "ProjectContainer | None":
    if not isinstance(policy, InContainer | InContainerReadOnly):
        return None
    from ferrule.containers.project import ProjectContainer

    return ProjectContainer(policy, cwd, home)
