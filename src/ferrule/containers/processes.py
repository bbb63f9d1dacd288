"""The processes of a container: begun when they are needed, anew where they have ended, one of them ahead."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ferrule.containers.errors import ContainerError
from ferrule.containers.images.errors import ImageError
from ferrule.containers.images.writable import Way, copy_root
from ferrule.containers.place import Slot
from ferrule.process.launcher import LaunchError
from ferrule.sandbox.linux.client import HelperEnded, InitProcess
from ferrule.sandbox.linux.holders import HolderProcess
from ferrule.sync import uninterrupted

SPARE_SECONDS = 30.0
"""A container that nobody has used for so long keeps no process ready, which takes memory."""
REFILL_DELAY = 0.002
"""Seconds: the next process is made when the command has started, not meanwhile."""
NOTICED_SECONDS = (0.0, 0.05)
"""Until it is noticed that its processes have ended, and they are begun anew: a turn of the loop, on a busy machine
more."""
T = TypeVar("T")


class NotStarted(ContainerError):
    """Nothing was started."""

    def __init__(self, reason: str = "the container ended before the command was started") -> None:
        super().__init__(reason)


class Processes:
    """The holder of a container and what it keeps ready.

    `begin` begins a holder or raises `ContainerError`; `begun` is told when it is ready; `clean` cleans up after its
    end.
    """

    def __init__(
        self,
        slot: Slot,
        *,
        begin: Callable[[], Awaitable[HolderProcess]],
        begun: Callable[[], None],
        clean: Callable[[], Awaitable[None]],
    ) -> None:
        self._slot = slot
        self._begin = begin
        self._begun = begun
        self._clean = clean
        self._starting = asyncio.Lock()
        self._spare_timer: asyncio.TimerHandle | None = None
        self.holder: HolderProcess | None = None
        self.layer = Way.OVERLAY
        """How changes of an image are kept apart from it."""

    @property
    def alive(self) -> bool:
        return self.holder is not None and self.holder.alive

    @property
    def mapped(self) -> bool:
        """True while there are processes with many user ids."""
        return self.holder is not None and bool(self.holder.mapped)

    async def running(self) -> HolderProcess:
        """Return the holder, begun if there is none, and count a use. Raises `ContainerError`."""
        async with self._starting:
            if self.holder is None or not self.holder.alive:
                await self._start()
            assert self.holder is not None
            self._slot.touch()
            return self.holder

    async def tried(self, attempt: Callable[[HolderProcess], Awaitable[T]]) -> T:
        """Try something with the holder, again if it has ended meanwhile."""
        for seconds in NOTICED_SECONDS:
            try:
                return await attempt(await self.running())
            except NotStarted:  # nothing has run
                await asyncio.sleep(seconds)
        return await attempt(await self.running())

    @staticmethod
    async def taken(holder: HolderProcess) -> InitProcess:
        """Return a process that waits for a command. Raises `NotStarted`."""
        try:
            return await holder.take(())
        except LaunchError as error:
            raise NotStarted from error

    def refill(self, holder: HolderProcess) -> None:
        """Make the next process soon, because one was taken."""
        asyncio.get_running_loop().call_later(REFILL_DELAY, self._refill, holder)

    def drop_spares(self) -> None:
        """End the processes that wait for a command: the next one takes a few milliseconds more."""
        if self.holder is not None:
            self.holder.drop_spares()

    async def stop(self) -> None:
        """End them all."""
        self._cancel_spare_timer()
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.close()
            await holder.gone()
            await self._clean()

    async def _start(self) -> None:
        try:
            await self._ready_holder()
        except NotStarted:  # killed before it was ready: nothing has run yet
            await self._ready_holder()
        self._begun()
        self._set_spare_timer()

    async def _ready_holder(self) -> None:
        """Begin a holder: on a copy of an image, where nothing can be laid over it."""
        await self.stop()
        holder = self.holder = await self._begin()
        try:
            await holder.wait_ready()
        except BaseException as error:
            await uninterrupted(self.stop())
            if not isinstance(error, LaunchError):
                raise
            if holder.no_overlay and not self._slot.copy.exists():
                await self._copy_image()
                return await self._ready_holder()
            kind = NotStarted if isinstance(error, HelperEnded) else ContainerError
            raise kind(str(error)) from error

    async def _copy_image(self) -> None:
        root = self._slot.record.settings.root
        assert root is not None
        try:
            self.layer = await asyncio.to_thread(copy_root, Path(root), self._slot.copy)
        except ImageError as error:
            raise ContainerError(str(error)) from error

    def _refill(self, holder: HolderProcess) -> None:
        if holder is self.holder and holder.alive and not holder.spares:
            holder.ask(())
        self._set_spare_timer()

    def _set_spare_timer(self) -> None:
        self._cancel_spare_timer()
        self._spare_timer = asyncio.get_running_loop().call_later(SPARE_SECONDS, self.drop_spares)

    def _cancel_spare_timer(self) -> None:
        if self._spare_timer is not None:
            self._spare_timer.cancel()
            self._spare_timer = None
