"""Where documents are parsed: in a container of its own, without a network and with little memory.

What cannot be made here falls back to less: the sandbox of commands, then a plain process with limits. The log says so.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from ferrule.containers.container import Container
from ferrule.containers.errors import ContainerExpired
from ferrule.containers.host import ContainerSettings
from ferrule.documents.extraction import PARSING, PlainPlace, command, folders
from ferrule.process.environment import CORE_VARIABLES
from ferrule.process.kernel import Kernel, KernelLost
from ferrule.process.launcher import LaunchError
from ferrule.protocol.permissions import ReadOnly
from ferrule.sandbox.linux.root import Bind
from ferrule.sandbox.plan import Level
from ferrule.sandbox.sandbox import Sandbox, open_launcher

MEMORY_BYTES = 2 << 30
"""Of all its processes; each bounds itself to half of it."""
PROCESSES = 64
DISK_BYTES = 16 << 20
"""Parsers write no files."""
TRIAL_MS = 20_000
"""Until the first process has answered: Python starts in 50 ms, on a busy machine in seconds."""
SHOWN = "/opt/parser"
"""Where its Python, its packages and the parsers lie inside: no path tells whose machine it is."""
SYSTEM = "/usr"
"""Seen by every container."""
LESS = "documents are parsed {}, since no container can be made: {}"

log = logging.getLogger("ferrule.documents")


Make = Callable[[ContainerSettings], Awaitable[Container]]
"""Makes a container: `LocalHost.create`, or `container_alone`. Raises `ContainerError`."""


async def container_alone(settings: ContainerSettings) -> Container:
    """Make a container with a host of its own. Raises `ContainerError`."""
    return Container.open(settings=settings)


class ContainerPlace:
    """A container for parsers, made at its first use and again when it has expired."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.container: Container | None = None
        base = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
        self._binds = list[Bind]()
        shown = [Path(self._shown(str(base.parents[1]), "python"), "bin", base.name)]
        shown += [Path(self._shown(folder, f"packages{at}")) for at, folder in enumerate(folders())]
        self._bind(str(PARSING), f"{SHOWN}/code/{PARSING.name}")
        self.argv = command(str(shown[0]), f"{SHOWN}/code", *shown[1:])

    async def start(self) -> Kernel:
        """Start a process. Raises `LaunchError`."""
        try:
            return await self._started()
        except ContainerExpired:
            await self.aclose()
            return await self._started()

    async def aclose(self) -> None:
        """End the container."""
        container, self.container = self.container, None
        if container is not None:
            await container.aclose()

    async def _started(self) -> Kernel:
        if self.container is None:
            self.container = await self._make(
                ContainerSettings(
                    memory_bytes=MEMORY_BYTES,
                    max_processes=PROCESSES,
                    disk_bytes=DISK_BYTES,
                    binds=tuple(self._binds),
                    temporary=True,
                )
            )
        return await Kernel.start(self.container, self.argv, self.container.environment, os.sep)

    def _shown(self, folder: str, name: str) -> str:
        """Return where a folder is inside."""
        real = os.path.realpath(folder)
        return real if Path(real).is_relative_to(SYSTEM) else self._bind(real, f"{SHOWN}/{name}")

    def _bind(self, source: str, target: str) -> str:
        self._binds.append(Bind(os.path.realpath(source), target))
        return target


class SandboxPlace:
    """The sandbox of commands, where a process can read the disk, but reach no network and write nothing."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def start(self) -> Kernel:
        """Start a process. Raises `LaunchError`."""
        env = {name: os.environ[name] for name in CORE_VARIABLES if name in os.environ}
        argv = command(sys.executable, PARSING.parent, *folders())
        return await Kernel.start(self._sandbox, argv, env, os.sep)

    async def aclose(self) -> None:
        """End the sandbox."""
        await self._sandbox.close()


Found = ContainerPlace | SandboxPlace | PlainPlace


class BestPlace:
    """The most confined place that this machine has, found at its first use. `make`: None if it has no containers.
    `tell` is told if it is less than a container."""

    def __init__(self, make: Make | None, home: Path, tell: Callable[[str], None] = log.warning) -> None:
        self._make = make
        self._tell = tell
        self._home = home
        self._place: Found | None = None
        self._finding = asyncio.Lock()

    async def start(self) -> Kernel:
        """Start a process. Raises `LaunchError`."""
        async with self._finding:
            if self._place is None:
                self._place, kernel = await self._first()
                return kernel
        return await self._place.start()

    async def aclose(self) -> None:
        """End what was opened."""
        await _close(self._place)

    async def _first(self) -> tuple[Found, Kernel]:
        if self._make is not None:
            try:
                return await _tried(ContainerPlace(self._make))
            except (LaunchError, KernelLost) as error:
                why = str(error)
        else:
            why = "there are none on this machine"
        return await _tried(await self._less(why))

    async def _less(self, why: str) -> Found:
        sandbox = await open_launcher(ReadOnly(), os.sep, self._home, unconfined_accepted=True)
        try:
            level = await sandbox.level()
        except LaunchError:
            level = Level.NONE
        if level is not Level.NONE:
            self._tell(LESS.format("in the sandbox of commands", why))
            return SandboxPlace(sandbox)
        await sandbox.close()
        self._tell(LESS.format("in a process of its own that nothing else confines", why))
        return PlainPlace()


async def _tried(place: Found) -> tuple[Found, Kernel]:
    """Return a place in which a process starts and answers. Raises `LaunchError` and `KernelLost`."""
    try:
        kernel = await place.start()
        await kernel.run("", TRIAL_MS)
    except BaseException:
        await _close(place)
        raise
    return place, kernel


async def _close(place: Found | None) -> None:
    if place is not None and not isinstance(place, PlainPlace):
        await place.aclose()
