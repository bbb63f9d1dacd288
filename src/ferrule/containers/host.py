"""The seam for containers on this machine or another one, in plain data."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from ferrule.containers.images.store import Image
from ferrule.process.launcher import Launcher
from ferrule.process.run import Completed
from ferrule.sandbox.linux.root import Bind

IDLE_SECONDS = 1200
"""As at OpenAI, whose clients expect it: 20 minutes after its last use a container is gone."""
MAX_PROCESSES = 1024
"""Processes and threads: enough for a parallel build, and a fork bomb ends soon."""
FILE_BYTES = 4 << 30
"""Bytes of one file."""
DISK_BYTES = 8 << 30
"""Bytes of all files of one container."""
MEMORY_BYTES = 1 << 30
"""As `memory_limit: 1g`, OpenAI's default."""

Status = Literal["running", "expired"]


def machine_memory() -> int:
    """Return the bytes of memory of this machine: no container gets more."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one container: its root and its limits.

    `memory_bytes`, `cpus`, `max_processes` and `disk_bytes` hold for all its commands together; `ferrule doctor` says
    how strictly. `root` is a folder with a whole file system (an unpacked image), which commands see instead of the
    machine's programs; their changes lie in a layer of the container. `users`: the machine's programs on a root of its
    own, which commands are root of and can change. `user` is the user of either root whom commands run as, as an image
    names it: its root, unless given. `temporary`: its files go with the process that made it, instead of staying until
    it expires.
    """

    root: str | None = None
    users: bool = False
    user: str = ""
    memory_bytes: int = MEMORY_BYTES
    cpus: float | None = None
    max_processes: int = MAX_PROCESSES
    file_bytes: int = FILE_BYTES
    disk_bytes: int = DISK_BYTES
    idle_seconds: float = IDLE_SECONDS
    env: dict[str, str] = {}
    binds: tuple[Bind, ...] = ()
    temporary: bool = False


def settings_on(image: Image | None) -> ContainerSettings:
    """Return the settings of a container on an image, or on the machine's programs."""
    if image is None:
        return ContainerSettings()
    return ContainerSettings(root=str(image.root), user=image.config.user, env=image.config.variables)


class ContainerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A container as others see it. Times are seconds since 1970."""

    id: str
    created_at: float
    last_used: float
    status: Status
    settings: ContainerSettings

    @property
    def expires_at(self) -> float:
        """When it ends if nobody uses it."""
        return self.last_used + self.settings.idle_seconds


class SomeContainer(Launcher, Protocol):
    """A container, wherever it is."""

    @property
    def id(self) -> str: ...
    @property
    def info(self) -> ContainerInfo: ...

    async def run(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] = {},
        cwd: str = ...,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Completed:
        """Run one command to its end: a line for bash, or an argv."""
        ...

    async def aclose(self) -> None:
        """End it and remove its files."""
        ...


class ContainerHost(Protocol):
    """Where containers are: this machine (`LocalHost`), or a pool of others."""

    async def create(self, settings: ContainerSettings = ...) -> SomeContainer:
        """Make a container. Raises `ContainerError`."""
        ...

    async def get(self, container_id: str) -> SomeContainer:
        """Return a container by its id. Raises `UnknownContainer`."""
        ...

    async def list(self) -> tuple[ContainerInfo, ...]:
        """Return all, oldest first."""
        ...

    async def remove(self, container_id: str) -> None:
        """End one and remove its files. Raises `UnknownContainer`."""
        ...
