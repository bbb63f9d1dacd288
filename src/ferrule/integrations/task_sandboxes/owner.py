"""Who has the sandboxes of an event loop, ends them, and removes what a killed program left of its own."""

import asyncio
from pathlib import Path
from weakref import WeakKeyDictionary

from ferrule.config import ferrule_home
from ferrule.containers import ContainerError, LocalHost, UnknownContainer
from ferrule.containers.local import DYING_WAIT, HostLimits, groups_are_gone
from ferrule.containers.place import default_place, on_disk, sweep, take_slot, tidy
from ferrule.integrations.task_sandboxes.in_container import ContainerSandbox
from ferrule.integrations.task_sandboxes.on_machine import MachineSandbox
from ferrule.integrations.task_sandboxes.wanted import TaskSandbox, Wanted

MOST = 4096
"""Sandboxes at once: memory ends it before."""
DYING_LOOKS = 20
"""For control groups of a killed program, whose processes are dying."""
ASKED = "its level is workspace-write"


class Sandboxes:
    """Makes sandboxes, with their files in `place`. Close it to end those that are left."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._host: LocalHost | None = None
        self._open: set[TaskSandbox] = set()
        self._opening = 0
        self.why_none: str | None = None
        """Why this machine has no containers; None if it has, or nobody wanted one yet."""

    @staticmethod
    def of(name: str) -> "Sandboxes":
        """Return those of the running loop that carry a framework's name, in a place of their own."""
        mine = _OF_LOOP.setdefault(asyncio.get_running_loop(), {})
        if name not in mine:
            mine[name] = Sandboxes(place_of(name))
        return mine[name]

    @property
    def any_open(self) -> bool:
        """True if one is open, or about to be."""
        return bool(self._open) or self._opening > 0

    async def open(self, wanted: Wanted) -> TaskSandbox:
        """Make one. Raises `FerruleError`: for an image that is not there, or a level that cannot be had."""
        self._opening += 1
        try:
            made = await self._made(wanted)
            self._open.add(made)
        finally:
            self._opening -= 1
        return made

    async def _made(self, wanted: Wanted) -> TaskSandbox:
        reason = ASKED if wanted.level == "workspace-write" else await self._without_containers()
        if reason is None:
            return await ContainerSandbox.open(wanted, self._containers(), self._open.discard)
        if wanted.level == "container":
            raise ContainerError(reason)
        return await MachineSandbox.open(wanted, self._place, reason, self._open.discard)

    async def aclose(self, *, keep: bool = False) -> list[TaskSandbox]:
        """End them all; with `keep` their files stay. Returns those that were left."""
        left = [*self._open]
        if keep:
            for one in left:
                one.keep()
        await asyncio.gather(*(one.aclose() for one in left))
        host, self._host = self._host, None
        if host is not None:
            await host.aclose()
        await asyncio.to_thread(tidy, self._place)
        return left

    async def _without_containers(self) -> str | None:
        if self.why_none is None:
            try:
                await self._containers().check()
            except ContainerError as error:
                self.why_none = str(error)
        return self.why_none

    def _containers(self) -> LocalHost:
        if self._host is None:
            self._host = LocalHost.open(self._place, limits=HostLimits(containers=MOST))
        return self._host


def place_of(name: str) -> Path:
    """Return the place of a framework's sandboxes, apart from containers that are somebody's own."""
    return default_place(str(Path(ferrule_home(), name)))


async def clean_up(place: Path, sandbox_id: str | None = None) -> tuple[list[str], list[str]]:
    """Remove the sandboxes in a place that no process has any more, or this one. Returns the ids of those that were
    removed, and of those that are in use. Raises `UnknownContainer` for an id that is not there."""
    removed, used = await asyncio.to_thread(_taken_away, place, sandbox_id)
    for _ in range(DYING_LOOKS):
        if await asyncio.to_thread(groups_are_gone):
            break
        await asyncio.sleep(DYING_WAIT)
    return removed, used


def _taken_away(place: Path, sandbox_id: str | None) -> tuple[list[str], list[str]]:
    there = [info.id for info in on_disk(place)]
    if sandbox_id is not None and sandbox_id not in there:
        raise UnknownContainer(f"there is no sandbox {sandbox_id}")
    removed, used = [], []
    for one in there if sandbox_id is None else [sandbox_id]:
        try:
            take_slot(place, one).remove()
            removed.append(one)
        except UnknownContainer:
            continue  # somebody else removed it meanwhile
        except ContainerError:
            used.append(one)
    if sandbox_id is None:
        sweep(place)  # what was only half made
    else:
        tidy(place)
    return removed, used


_OF_LOOP: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Sandboxes]]" = WeakKeyDictionary()
"""Frameworks call classes, not objects: what their calls share is found by the loop that they run on."""
