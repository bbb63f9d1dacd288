"""The containers of this machine: made, found, expired, removed; what a killed predecessor left is swept."""

import asyncio
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from ferrule.config import ferrule_home
from ferrule.containers.container import Container
from ferrule.containers.data_stack import DataStack
from ferrule.containers.errors import ContainerError, ContainerExpired
from ferrule.containers.host import ContainerInfo, ContainerSettings, machine_memory
from ferrule.containers.place import (
    SKILLS,
    Slot,
    default_place,
    in_our_hands,
    new_slot,
    on_disk,
    sweep,
    take_slot,
    tidy,
)
from ferrule.process.launcher import LaunchError
from ferrule.sandbox.environment import NESTED, is_inside
from ferrule.sandbox.linux.cgroups import Group, Groups, find_groups, remove_unheld
from ferrule.sandbox.linux.holders import HolderProcess, settings_of
from ferrule.sandbox.linux.mothers import Mothers
from ferrule.sandbox.linux.root import Bind, Layers, PrivateRoot
from ferrule.sandbox.way_out import WayOut
from ferrule.sync import LoopBound, close_at_exit, in_thread, uninterrupted

MAX_CONTAINERS = 256
"""At once: each takes some megabytes of memory and a few processes."""
REMEMBERED = 1000
"""Ids of ended containers, so that their users are told what happened to them."""
IMAGES = "images"
"""The folder of `FERRULE_HOME` with images and the data stack."""
SHORTEST_WAIT = 0.05
"""Seconds between two looks for expired containers."""
DYING_WAIT = 0.5
"""Seconds until the next look for control groups of a killed predecessor, whose processes are dying."""
OTHERS_WAIT = 60.0
"""Seconds until the next look for one that should have expired, but another process has it."""
GONE = "container {} has ended and its files are gone (containers end after {:g} minutes without use): make a new one"
_DEFAULT = ContainerSettings()
log = logging.getLogger("ferrule.containers")


class HostLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of all containers of a host. `memory_bytes` caps that of each; `spares` are kept ready, with the
    settings `spare`; `groups` False does without control groups."""

    containers: int = MAX_CONTAINERS
    memory_bytes: int | None = None
    spares: int = 0
    spare: ContainerSettings = ContainerSettings()
    groups: bool = True


_LIMITS = HostLimits()


class LocalHost(LoopBound):
    """The containers of one process. Open it with `async with`; its end leaves the files for the next one, except those
    of temporary containers.

    `interpreter` replaces `sys.executable` for the helper processes; tests run them as another user.
    """

    def __init__(self, place: Path, limits: HostLimits, interpreter: Sequence[str]) -> None:
        self._place = place
        self._limits = limits
        self._containers: dict[str, Container] = {}
        self._groups: dict[str, Group] = {}
        self._stack = DataStack(Path(ferrule_home(), IMAGES))
        self._held: dict[str, int] = {}
        """What keeps the data stack of each running container."""
        self._ended: deque[str] = deque(maxlen=REMEMBERED)
        self._mothers = Mothers("holder", interpreter)
        self._spares: deque[Container] = deque()
        self.warm: Callable[[Container], Awaitable[None]] = _as_it_is
        """Readies a spare."""
        self._filling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._left_until: float | None = None
        """When the first container that is not ours may be over."""
        self._opened = False
        self._works = False
        self._forget_exit: Callable[[], None] = lambda: None

    @classmethod
    def open(
        cls, data_dir: Path | None = None, *, limits: HostLimits = _LIMITS, interpreter: Sequence[str] = ()
    ) -> Self:
        """Open the containers in a folder, by default a neutral one below `/var/tmp`. Raises `ContainerError` where
        there can be none."""
        if sys.platform != "linux":
            raise ContainerError("containers need Linux: run Ferrule there, or in a virtual machine with Linux")
        if is_inside():
            raise ContainerError(NESTED)
        return cls(data_dir or default_place(ferrule_home()), limits, interpreter)

    async def __aenter__(self) -> Self:
        await self.prepare()
        self._refill()
        return self

    async def prepare(self) -> None:
        """Sweep, once, what a killed predecessor left; what it left and is not over yet, when it is."""
        self.bind_to_running_loop()
        if not self._opened:
            self._opened = True
            self._forget_exit = close_at_exit(self.aclose)
            await self._sweep()
            self._schedule()

    async def check(self) -> None:
        """Raise `ContainerError` if no container can be made here: the first time, one is."""
        if not self._works:
            await self.discard(await self.create(ContainerSettings(temporary=True)))

    async def create(
        self,
        settings: ContainerSettings = _DEFAULT,
        way_out: WayOut | None = None,
        *,
        note: Callable[[Container], Awaitable[None]] | None = None,
    ) -> Container:
        """Make a container and start it. `note` is awaited before it outlives this process: whoever keeps a list of
        containers notes it there, and no kill leaves one that nobody knows. Raises `ContainerError`."""
        spare = await self._spare(settings) if way_out is None else None
        container = spare or await self._started(settings, way_out)
        try:
            if note is not None:
                await note(container)
            self._keep(container.publish())
        except BaseException:
            await uninterrupted(container.expire())
            raise
        self._refill()
        return container

    async def get(self, container_id: str) -> Container:
        """Return a container by its id; one whose process has ended is taken over with its files. Raises
        `UnknownContainer`, `ContainerExpired`, or `ContainerError` if another process has it."""
        if container_id in self._containers:
            return self._containers[container_id]
        if container_id in self._ended:
            raise ContainerExpired(GONE.format(container_id, _DEFAULT.idle_seconds / 60))
        slot = await in_our_hands(partial(take_slot, self._place, container_id), Slot.release)
        idle = slot.record.settings.idle_seconds
        if slot.last_used + idle < time.time():
            await asyncio.to_thread(slot.remove)
            raise ContainerExpired(GONE.format(container_id, idle / 60))
        container = Container(self, slot).adopted()
        container.touch()
        self._keep(container)
        return container

    async def list(self) -> "tuple[ContainerInfo, ...]":
        """Return the containers of all processes that share the place, oldest first."""
        found = await asyncio.to_thread(lambda: [*on_disk(self._place)])
        now = time.time()
        return tuple(info for info in found if info.id in self._containers or info.expires_at > now)

    async def remove(self, container_id: str) -> None:
        """End a container and remove its files. Raises as `get` does."""
        await self.discard(await self.get(container_id))

    async def aclose(self) -> None:
        """End all containers."""
        self._forget_exit()
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._filling, self._expiring):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        containers, spares = [*self._containers.values()], [*self._spares]
        self._containers.clear()
        self._spares.clear()
        await asyncio.gather(*map(_leave, containers), *(spare.expire() for spare in spares))
        await self._mothers.aclose()
        await in_thread(tidy, self._place)

    async def discard(self, container: Container) -> None:
        """End a container and remove its files; does nothing if that was done."""
        if self._containers.pop(container.id, None) is not None:
            self._ended.append(container.id)
            await uninterrupted(container.expire())

    def adopt(self, settings: ContainerSettings) -> Container:
        """Make a container that starts at its first use. Blocking, for a moment."""
        slot = new_slot(self._place, settings)
        try:
            container = self._containers[slot.record.id] = Container(self, slot).publish()
        except ContainerError:
            slot.remove()
            raise
        return container

    @property
    def place(self) -> Path:
        """The folder with its containers."""
        return self._place

    @property
    def ready_spares(self) -> int:
        """Count the containers that wait for somebody who needs one."""
        return len(self._spares)

    # For containers

    async def holder_for(self, container: Container, slot: Slot) -> HolderProcess:
        """Begin the processes of a container. Raises `ContainerError`."""
        await self.prepare()
        own = container.settings
        groups = find_groups() if self._limits.groups else ""  # known since `prepare`
        root = _root(slot, container, None if own.root else self._packages(container))
        with ExitStack() as stack:
            entrances = self._group(container, groups).entrances(stack) if isinstance(groups, Groups) else []
            settings = settings_of(
                root, self.memory_bytes(own), own.disk_bytes, container.way_out, grouped=bool(entrances)
            )
            holder = self._mothers.bear(partial(HolderProcess, way_out=container.way_out), settings, entrances)
        holder.ask(())
        return holder

    async def let_go(self, container: Container) -> None:
        """Clean up after the processes of a container have ended."""
        if container.id in self._held:
            os.close(self._held.pop(container.id))
        group = self._groups.pop(container.id, None)
        if group is not None:
            await group.remove()

    def memory_bytes(self, settings: ContainerSettings) -> int:
        """Return how much memory a container really gets."""
        return min(settings.memory_bytes, self._limits.memory_bytes or settings.memory_bytes, machine_memory())

    def memory_of_a_process(self, container: Container) -> int | None:
        """Return what one process may take, where no control group bounds them together."""
        return None if container.id in self._groups else self.memory_bytes(container.settings)

    def killed(self, container: Container) -> int:
        """Count the processes of a container that were ended because its memory was used up."""
        group = self._groups.get(container.id)
        return group.killed() if group is not None else 0

    def _packages(self, container: Container) -> Bind | None:
        """Return the data stack, if there is one, and keep it until the container's processes have ended."""
        used = self._stack.use()
        if used is None:
            return None
        bind, self._held[container.id] = used
        return bind

    def _group(self, container: Container, groups: Groups) -> Group:
        own = container.settings
        group = Group(groups, own.cpus)
        try:
            group.make(memory_bytes=self.memory_bytes(own), max_processes=own.max_processes)
        except OSError as error:
            raise ContainerError(f"the container's control group cannot be made: {error.strerror}") from error
        self._groups[container.id] = group
        return group

    async def _started(self, settings: ContainerSettings, way_out: WayOut | None = None) -> Container:
        await self.prepare()
        if len(self._containers) + len(self._spares) >= self._limits.containers:
            raise ContainerError(
                f"there are {self._limits.containers} containers already: close one, or wait until one expires"
            )
        container = Container(self, await in_our_hands(partial(new_slot, self._place, settings), Slot.remove))
        container.way_out = way_out
        try:
            await container.start()
        except BaseException:
            await uninterrupted(container.expire())
            raise
        self._works = True
        return container

    def _keep(self, container: Container) -> None:
        self._containers[container.id] = container
        self._schedule()

    async def _spare(self, settings: ContainerSettings) -> Container | None:
        while self._spares and settings == self._limits.spare:
            spare = self._spares.popleft()
            if spare.alive:
                return spare
            await uninterrupted(spare.expire())
        return None

    def _refill(self) -> None:
        if len(self._spares) < self._limits.spares and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        with suppress(LaunchError):  # whoever needs a container gets the error
            while len(self._spares) < self._limits.spares:
                spare = await self._started(self._limits.spare)
                try:
                    await self.warm(spare)
                except BaseException:
                    await uninterrupted(spare.expire())
                    raise
                self._spares.append(spare)

    def _schedule(self) -> None:
        """Wake up when the next container may expire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ends = [container.info.expires_at for container in self._containers.values()]
        ends += [] if self._left_until is None else [self._left_until]
        if ends:
            wait = max(min(ends) - time.time(), SHORTEST_WAIT)
            self._timer = asyncio.get_running_loop().call_later(wait, self._look)

    def _look(self) -> None:
        if self._expiring is None or self._expiring.done():
            self._expiring = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        now = time.time()
        for container in [*self._containers.values()]:
            if container.busy:
                container.touch()
            elif container.info.expires_at <= now:
                try:
                    await self.discard(container)
                except OSError as error:  # the others are to expire, too
                    log.warning("the expired container %s cannot be removed: %s", container.id, error.strerror)
        if self._left_until is not None and self._left_until <= now:
            self._left_until = None
            try:
                await self._sweep()
            except (OSError, ContainerError) as error:  # the next process will
                log.warning("containers of earlier processes cannot be removed: %s", error)
        self._schedule()

    async def _sweep(self) -> None:
        """Remove what no process has any more, and note when to look again."""
        soonest = await asyncio.to_thread(sweep, self._place)
        if soonest is not None and soonest <= time.time():
            soonest = time.time() + OTHERS_WAIT
        if not await asyncio.to_thread(groups_are_gone):
            soonest = time.time() + DYING_WAIT
        self._left_until = soonest


def single_container(settings: ContainerSettings) -> Container:
    """Make a container with a host of its own, which ends with it."""
    host = LocalHost.open()
    container = host.adopt(settings)
    container.when_closed = host.aclose
    return container


def groups_are_gone() -> bool:
    """Remove the control groups of killed predecessors. Returns False if processes are still dying in some."""
    groups = find_groups()
    return not isinstance(groups, Groups) or remove_unheld(groups)


def _root(slot: Slot, container: Container, packages: Bind | None) -> PrivateRoot:
    own = container.settings
    image = None
    if own.users:
        image = Layers(base=str(slot.copy))
    elif own.root is not None:
        if not Path(own.root).is_dir():
            raise ContainerError(f"{own.root} is no folder with the files of an image")
        image = (
            Layers(base=str(slot.copy))
            if slot.copy.is_dir()
            else Layers(base=os.path.realpath(own.root), upper=slot.path("upper"), work=slot.path("work"))
        )
    return PrivateRoot(
        data=slot.path("data"),
        tmp=slot.path("tmp"),
        home=slot.path("home"),
        skills=slot.path(SKILLS),
        binds=own.binds,
        packages=packages,
        image=image,
        programs=own.root is None,
        account=container.account,
    )


async def _as_it_is(spare: Container) -> None:
    """Leave a spare as it is."""


async def _leave(container: Container) -> None:
    if container.settings.temporary:
        await container.expire()
    else:
        await container.release()
