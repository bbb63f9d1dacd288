"""The container in which a whole coding agent works: a project at its own path, protected as by every sandbox."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.containers.container import Container
from ferrule.containers.errors import ContainerError
from ferrule.containers.host import settings_on
from ferrule.containers.images import Image, Images
from ferrule.containers.local import IMAGES, LocalHost
from ferrule.containers.place import default_place
from ferrule.process.launcher import Limits, Stdio
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import InContainer, InContainerReadOnly
from ferrule.sandbox.boundary import Cover
from ferrule.sandbox.linux.launcher import ConfinedChild, wire_covers
from ferrule.sandbox.linux.root import bind_in_place
from ferrule.sandbox.placeholders import Placeholders
from ferrule.sandbox.plan import is_within
from ferrule.sandbox.pool import LINGER_SECONDS, MAX_PROCESSES
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.way_out import WayOut
from ferrule.sync import uninterrupted

SHELLS = ("bin/bash", "usr/bin/bash", "bin/sh", "usr/bin/sh")
MAX_LINKS = 40
"""Links on one path, as in the kernel."""
NO_NETWORK = "containers cannot reach all of the network: let network_access list domains, or choose -s workspace-write"
NO_SHELL = "the image {} has no shell: an agent needs one with /bin/sh at least"

Contained = InContainer | InContainerReadOnly


class ProjectContainer:
    """The container of one session and its sub-agents. Nothing runs before its first use. Close it.

    `folders` are those that it shows, by their real paths.
    """

    def __init__(self, policy: Contained, cwd: str, home: str, host: LocalHost | None = None) -> None:
        """`home` is Ferrule's own folder. Raises `UsageError` for a folder that cannot be shown, `ImageError`, and
        `ContainerError` where there can be no container."""
        if policy.network_access is True:
            raise UsageError(NO_NETWORK)
        self._place = default_place(home)
        self.folders = _shown(policy, cwd, (str(self._place.parent),))
        self._host = host or LocalHost.open(self._place)
        self._images = Images(Path(home, IMAGES))
        self.image = policy.image
        image = None if policy.image is None else self._images.get(policy.image)
        self.shell = "/bin/bash" if image is None else _shell_of(image)
        self._settings = msgspec.structs.replace(
            settings_on(image),
            memory_bytes=_memory(),
            max_processes=MAX_PROCESSES,
            binds=tuple(map(bind_in_place, self.folders)),
            temporary=True,
        )
        self._box: Container | None = None
        self._lock = -1
        self.way_out: WayOut | None = None
        """Serves its way to the network. Set it before the first use."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a command inside, before the user's own settings."""
        return Container.variables(self._settings)

    def box(self) -> Container:
        """Return the container. Raises `LaunchError`, also if its image has gone."""
        if self._box is None:
            if self.image is not None:
                self._lock = self._images.hold(self.image)
            self._box = self._host.adopt(self._settings)
            self._box.way_out = self.way_out
        return self._box

    async def close(self) -> None:
        """End it with all that runs in it."""
        if self._box is not None:
            await self._box.aclose()
        await self._host.aclose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class ProjectLauncher:
    """The launcher of one policy in a container. `covers` returns what is protected now.

    What a command leaves running goes on: it counts as a command until it has ended. Close it to end all of these.
    """

    def __init__(
        self,
        container: ProjectContainer,
        protection: Protection,
        covers: Callable[[], Sequence[Cover]],
    ) -> None:
        self._container = container
        self._protection = protection
        self._covers = covers
        self._placeholders = Placeholders(protection.home / "sandbox", protection.plan.roots)
        self._inits: set[int] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._none_left = asyncio.Event()

    async def ready(self) -> int:
        """Start the container. Returns the version of Landlock in use, 0 for none. Raises `LaunchError`."""
        box = self._container.box()
        await box.start()
        return box.landlock

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> ConfinedChild:
        """Start a command. Raises `LaunchError`."""
        box = self._container.box()
        await box.start()
        env = box.fitted(env)
        await self._protection.began()
        given = False

        def on_init(pidfd: int) -> None:
            nonlocal given
            given = True
            self._inits.add(pidfd)
            asyncio.get_running_loop().add_reader(pidfd, self._gone, pidfd)

        covers: list[Cover] | None = None
        try:
            covers = await self._placeholders.acquire(self._covers())
            child = await box.launch(argv, env, cwd, stdio, limits, covers=wire_covers(covers), on_init=on_init)
        finally:
            if not given:
                if covers is not None:
                    self._placeholders.release()
                await uninterrupted(self._over())
        child.notes = box.take_notices
        return child

    async def close(self) -> None:
        """End what still runs."""
        for pidfd in self._inits:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        while self._inits:
            self._none_left.clear()
            await self._none_left.wait()
        if self._ends:
            await asyncio.wait(self._ends)
        self._placeholders.close()

    def _gone(self, pidfd: int) -> None:
        """Note that a command and all that it left running have ended."""
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self._inits.discard(pidfd)
        task = asyncio.create_task(self._linger())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
        self._none_left.set()

    async def _linger(self) -> None:
        await asyncio.sleep(LINGER_SECONDS)
        self._placeholders.release()
        await self._over()

    async def _over(self) -> None:
        await self._protection.ended()


def _shown(policy: Contained, cwd: str, ours: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that the container shows, outer ones first. Raises `UsageError`."""
    roots = policy.writable_roots if isinstance(policy, InContainer) else policy.folders
    real = [os.path.realpath(os.path.expanduser(path)) for path in (cwd, *roots)]
    folders: list[str] = []
    for path in sorted(filter(os.path.isdir, dict.fromkeys(real)), key=lambda path: path.count("/")):
        if any(is_within(place, path) for place in ours):
            raise UsageError(f"{path} holds Ferrule's containers: choose a folder below it")
        if not any(is_within(path, folder) for folder in folders):
            folders.append(path)
    return tuple(folders)


def _memory() -> int:
    """Return the machine's memory: an agent's builds may take what they take without a container."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _shell_of(image: Image) -> str:
    """Return the shell of an image, as commands see it. Raises `ContainerError` if there is none."""
    for name in SHELLS:
        if found_in(image.root, f"/{name}"):
            return f"/{name}"
    raise ContainerError(NO_SHELL.format(image.name))


def found_in(root: Path, path: str) -> bool:
    """Tell whether a path leads to a regular file in a root file system, whose links start at that root."""
    todo, links = path.split("/")[::-1], 0
    here: list[str] = []
    while todo:
        name = todo.pop()
        if name == "..":
            here = here[:-1]
        elif name not in ("", "."):
            place = root.joinpath(*here, name)
            if place.is_symlink():
                links += 1
                if links > MAX_LINKS:
                    return False
                target = os.readlink(place)
                here = [] if target.startswith("/") else here
                todo += target.split("/")[::-1]
            else:
                here = [*here, name]
    return root.joinpath(*here).is_file()
