"""The containers of a gateway's clients: whose they are, which conversation goes on in which, and their Pythons."""

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

import msgspec

from ferrule.containers import (
    Container,
    ContainerError,
    ContainerExpired,
    LocalHost,
    UnknownContainer,
)
from ferrule.containers.data import FolderClosed
from ferrule.containers.host import settings_on
from ferrule.containers.images import Image
from ferrule.containers.languages import Languages, languages_of
from ferrule.egress.egress import Egress
from ferrule.egress.names import DomainNames
from ferrule.hosted.container_files import LINK, ContainerFiles
from ferrule.hosted.network import Network, PolicyRefused, Reach, network_note
from ferrule.hosted.skills import ClientSkills, FoundSkill, ShownSkill, skills_note
from ferrule.hosted.tool import Scope, ToolRefused
from ferrule.hosted.wanted import MEMORY_LIMITS, Wanted, details_of, kept_of, skills_of, wanted_of
from ferrule.process.kernel import Kernel
from ferrule.process.launcher import LaunchError
from ferrule.process.python_kernel import start_python
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import JsonObject
from ferrule.protocol.specs import NetworkPolicy
from ferrule.sandbox.linux.root import DATA
from ferrule.store import ContainerRecord, StoreFull
from ferrule.store.place import NO_SPACE

if TYPE_CHECKING:
    from ferrule.store import Store

NO_PYTHON = "this container has no Python: use another language, by the shell"
KEPT_SECONDS = 30 * 24 * 3600
"""After it was made an ended container is listed for so long, as its responses are kept by default."""
WARM = """\
def warm():
    for name in ("numpy", "pandas", "matplotlib.pyplot"):
        try: __import__(name)
        except Exception: pass
warm()
del warm
"""
"""Takes a second, and some 100 MB where all of them are there; nothing where they are not."""
MAX_REFUSALS = 10
"""Sentences that one output tells about whom its programs could not reach."""
NO_FILE = "there is no file {!r}"
LOST_SECRETS = (
    "container {} has ended: the server keeps the secrets of a container in memory alone and was started anew; make a "
    "new one"
)
_CLOSED = Network(bounds=DomainNames(()))
"""Nothing may be reached."""


class State(msgspec.Struct, frozen=True):
    """How a container is. `minutes` are those without use after which it ends."""

    status: Literal["running", "expired"]
    last_active_at: int
    minutes: int


class UnknownFile(ContainerError):
    """A file that a container was to have does not exist."""


class ClientContainer:
    """A client's container with its Python, which keeps what it defines from cell to cell."""

    def __init__(
        self, record: ContainerRecord, box: Container, languages: Languages, kernel: Kernel | None = None
    ) -> None:
        self.record = record
        self.box = box
        self.files = ContainerFiles(box.id, box.folder)
        self.turn = asyncio.Lock()
        """Held while a cell runs: there is one at a time."""
        self.skills: dict[str, str] = {}
        """The keys of the skills that were written since it was opened, by their names."""
        self._kernel = kernel
        self._python = languages.python
        self.reach: Reach | None = None
        """What it may reach, from its next start on; None for nothing."""
        self.way: Egress | None = None
        """Serves that."""

    @property
    def id(self) -> str:
        return self.record.id

    async def python(self) -> Kernel:
        """Return the running Python, started if there is none. Raises `LaunchError`."""
        if self._kernel is None or self._kernel.lost:
            if self._python is None:
                raise LaunchError(NO_PYTHON)
            self._kernel = await start_python(self.box.background, self._python, self.box.environment, DATA)
        return self._kernel

    def let_out(self, network: Network, reach: Reach | None) -> None:
        """Let it reach this, from its next start on. Raises `ContainerError`."""
        self.reach = reach
        self.way = self.box.way_out = None if reach is None else network.way_out(reach)

    def take_refusals(self) -> list[str]:
        """Return, once, whom its programs could not reach: sentences."""
        told = [] if self.way is None else self.way.take_refusals()
        more = len(told) - MAX_REFUSALS
        return told if more <= 0 else [*told[:MAX_REFUSALS], f"{more} more connections were refused."]

    async def close_way(self) -> None:
        """End its connections."""
        if self.way is not None:
            await self.way.aclose()


class ClientContainers:
    """Makes containers on `host` and keeps whose they are in `store`. The owner of the host closes it, and this.

    `image` is what they run on, instead of the machine's programs; whoever made this holds it.
    """

    def __init__(
        self,
        host: LocalHost,
        store: "Store",
        *,
        idle_seconds: float,
        image: Image | None = None,
        network: Network = _CLOSED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._image = image
        self._network = network
        self._languages: dict[str | None, Languages] = {}
        self._store = store
        self._idle_seconds = idle_seconds
        self._clock = clock
        self.skills = ClientSkills(store)
        self._open: dict[str, ClientContainer] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._warm: dict[str, Kernel] = {}
        """The Pythons of the spares."""
        host.warm = self._warm_up

    async def _warm_up(self, box: Container) -> None:
        """Start Python in a spare, and let it load what takes long."""
        python = (await self._languages_of(box)).python
        if python is not None:
            kernel = await start_python(box.background, python, box.environment, DATA, WARM)
            self._warm = {name: one for name, one in self._warm.items() if not one.lost} | {box.id: kernel}

    async def create(
        self,
        owner: str,
        wanted: Wanted,
        *,
        name: str = "",
        lane: str | None = None,
        skills: Sequence[FoundSkill] = (),
    ) -> ClientContainer:
        """Make a container. Raises `ContainerError`; `UnknownFile` for a file that does not exist; `ToolRefused` for a
        skill that was deleted meanwhile; `PolicyRefused` for a network that cannot be."""
        idle = self._idle_seconds if wanted.minutes is None else wanted.minutes * 60
        settings = msgspec.structs.replace(
            settings_on(self._image), memory_bytes=MEMORY_LIMITS[wanted.memory_limit], idle_seconds=idle
        )
        reach = self._network.reach(wanted.network)
        way = None if reach is None else self._network.way_out(reach)
        record = ContainerRecord(
            id="",
            owner=owner,
            created_at=int(self._clock()),
            name=name,
            lane=lane,
            details=kept_of(msgspec.structs.replace(wanted, file_ids=())),
        )

        async def note(box: Container) -> None:
            nonlocal record
            record = msgspec.structs.replace(record, id=box.id)
            await self._store.add_container(record)

        try:
            box = await self._host.create(settings, way, note=note)
            made = ClientContainer(record, box, await self._languages_of(box), self._warm.pop(box.id, None))
            made.reach, made.way = reach, way
            await self.add_files(made, wanted.file_ids)
            await self.add_skills(made, skills)
        except BaseException:
            await self.remove(record)
            if way is not None:
                await way.aclose()
            raise
        self._open = {place.id: place for place in self._open.values() if place.box.status == "running"}
        self._open[box.id] = made
        return made

    async def add_skills(self, place: ClientContainer, skills: Sequence[FoundSkill]) -> None:
        """Show skills in a container. Raises `ContainerError`, and `ToolRefused` for one that was deleted meanwhile."""
        async with self._lock(f"{place.id}\0skills"):
            missing = [skill for skill in skills if place.skills.get(skill.shown.name) != skill.key]
            try:
                await self.skills.write(place.record.owner, place.box.skills_folder, missing)
            except OSError as error:
                raise ContainerError(f"the skills cannot be written: {error.strerror}") from error
            place.skills |= {skill.shown.name: skill.key for skill in missing}
            await self._note_skills(place, [skill.shown for skill in missing])

    async def add_files(self, place: ClientContainer, file_ids: Sequence[str]) -> None:
        """Copy stored files into a container, those that it got before excepted. Raises `ContainerError`."""
        async with self._lock(f"{place.id}\0files"):
            for file_id in dict.fromkeys(file_ids):
                known = details_of(place.record)
                if file_id not in known.file_ids:
                    await self.bring(place, file_id)
                    known = details_of(place.record)
                    await self._note(place, msgspec.structs.replace(known, file_ids=(*known.file_ids, file_id)))

    async def _note_skills(self, place: ClientContainer, skills: Sequence[ShownSkill]) -> None:
        """Store which skills a container has, for requests that name it."""
        wanted = details_of(place.record)
        kept = {skill.name: skill for skill in (*wanted.skills, *skills)}
        if tuple(kept.values()) != wanted.skills:
            await self._note(place, msgspec.structs.replace(wanted, skills=tuple(kept.values())))

    async def _note(self, place: ClientContainer, wanted: Wanted) -> None:
        """Store what a container is now. Who notes something else meanwhile begins from this."""
        details = kept_of(wanted)
        place.record = msgspec.structs.replace(place.record, details=details)
        await self._store.change_container(place.record.owner, place.id, details)

    async def get(self, owner: str, container_id: str) -> ClientContainer:
        """Return a client's container. Raises `UnknownContainer`, and `ContainerExpired` if it has ended."""
        record = await self._store.container(owner, container_id)
        if record is None:
            raise UnknownContainer(f"there is no container {container_id!r}")
        return await self._opened(record)

    async def states(self, records: Sequence[ContainerRecord]) -> list[State]:
        """Return how containers are, without using them."""
        found = {info.id: info for info in await self._host.list()}
        states: list[State] = []
        for record in records:
            info = found.get(record.id)
            minutes = details_of(record).minutes or round(self._idle_seconds / 60)
            last = record.created_at if info is None else int(info.last_used)
            lost = record.id not in self._open and details_of(record).has_secrets
            states.append(State("expired" if info is None or lost else info.status, last, minutes))
        return states

    async def forget_old(self, now: int) -> None:
        """Remove what a killed server left and is over, and forget containers that ended long ago."""
        if self._host.place.is_dir():  # else there is nothing, and nothing is to be started
            await self._host.prepare()
        running = {info.id for info in await self._host.list()}
        await self._store.expire_containers(now - KEPT_SECONDS, running)

    async def remove(self, record: ContainerRecord) -> None:
        """End a container, and forget it with its files. Raises `ContainerError` if another process has it."""
        if (place := self._open.pop(record.id, None)) is not None:
            await place.close_way()
        with suppress(UnknownContainer, ContainerExpired):
            await self._host.remove(record.id)
        await self._store.delete_container(record.owner, record.id)

    async def of(self, scope: Scope, wanted: Wanted) -> ClientContainer:
        """Return the container in which a conversation goes on; make it if there is none. Raises as `create` does."""
        async with self._lock(f"{scope.owner}\0{scope.lane}"):
            for container_id in reversed(scope.containers):
                if record := await self._store.container(scope.owner, container_id):
                    return await self._or_new(record, scope, wanted)
            record = await self._store.container_of(scope.owner, scope.lane)
            return await self._or_new(record, scope, wanted)

    async def check(self, owner: str, named: str | None, declared: JsonObject, param: str, *, by: str) -> str:
        """Look up the container that a tool names in the field `by`, or what `param` declares of a new one. Returns
        what the model is told of its languages and skills. Raises `ToolRefused`."""
        try:
            if named is not None:
                place = await self.get(owner, named)
                made = details_of(place.record)
                return _note(await self._languages_of(place.box), made.skills, made.network)
            wanted = wanted_of(declared)
            self._network.reach(wanted.network)
            await self.check_files(owner, wanted.file_ids)
            found = await self.skills.find(owner, skills_of(declared), f"{param}.skills")
            languages = await self.languages()
            await self._host.check()  # free, after a container was asked for its languages
            return _note(languages, [skill.shown for skill in found], wanted.network)
        except UnknownFile as error:
            raise ToolRefused(str(error), f"{param}.file_ids", status=404, code="not_found") from error
        except PolicyRefused as error:
            raise ToolRefused(str(error), f"{param}.{error.param}") from error
        except ContainerError as error:
            raise refused(error, by if named is not None else param) from error

    async def place(self, scope: Scope, named: str | None, declared: JsonObject) -> ClientContainer:
        """Return the container that a tool names, or the conversation's own. Raises `RespondToModel`."""
        try:
            if named is not None:
                return await self.get(scope.owner, named)
            found = await self.skills.find(scope.owner, skills_of(declared), "skills")
            wanted = wanted_of(declared)
            place = await self.of(scope, wanted)
            await self.add_files(place, wanted.file_ids)
            await self.add_skills(place, found)
            return place
        except (ContainerError, ToolRefused, PolicyRefused) as error:
            raise RespondToModel(str(error)) from error

    async def _or_new(self, record: ContainerRecord | None, scope: Scope, wanted: Wanted) -> ClientContainer:
        if record is not None:
            try:
                return await self._adapted(await self._opened(record), wanted)
            except (ContainerExpired, UnknownContainer):
                pass  # its files are gone: the conversation goes on in a new one
        return await self.create(scope.owner, wanted, lane=scope.lane)

    async def _opened(self, record: ContainerRecord) -> ClientContainer:
        async with self._lock(record.id):
            known = self._open.get(record.id)
            if known is None or known.box.status != "running":
                known = self._open[record.id] = await self._place(record)
            return known

    async def _place(self, record: ContainerRecord) -> ClientContainer:
        """Take over a container that an earlier server has left. Its secrets have ended with that one."""
        kept = details_of(record)
        if kept.has_secrets:
            with suppress(UnknownContainer, ContainerExpired):
                await self._host.remove(record.id)
            raise ContainerExpired(LOST_SECRETS.format(record.id))
        box = await self._host.get(record.id)
        place = ClientContainer(record, box, await self._languages_of(box))
        place.let_out(self._network, self._network.still(kept.network))
        return place

    async def _adapted(self, place: ClientContainer, wanted: Wanted) -> ClientContainer:
        """Let a container reach what is wanted now. Its processes end for that, if it is something else; its files
        stay."""
        if wanted.network is None:
            return place
        reach = self._network.reach(wanted.network)
        async with self._lock(place.id):
            if not _same(reach, place.reach):
                await place.box.stop()
                await place.close_way()
                place.let_out(self._network, reach)
                known = details_of(place.record)
                await self._note(place, msgspec.structs.replace(known, network=wanted.network, has_secrets=False))
            return place

    async def aclose(self) -> None:
        """End the connections of all containers."""
        for place in self._open.values():
            await place.close_way()

    @property
    def shell(self) -> str:
        """The shell that runs commands."""
        return "bash" if self._image is None else "sh"

    async def languages(self) -> Languages:
        """Return which languages a new container has. Asks in one, the first time. Nothing is known without one."""
        settings = settings_on(self._image)
        if settings.root not in self._languages:
            try:
                box = await self._host.create(msgspec.structs.replace(settings, temporary=True))
            except ContainerError:
                return Languages()
            try:
                await self._languages_of(box)
            finally:
                await box.aclose()
        return self._languages[settings.root]

    async def _languages_of(self, box: Container) -> Languages:
        root = box.settings.root
        if root not in self._languages:
            self._languages[root] = await languages_of(box)
        return self._languages[root]

    def _lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a container or of a conversation, as long as somebody holds it."""
        return self._locks.setdefault(name, asyncio.Lock())

    async def bring(self, place: ClientContainer, file_id: str) -> str:
        """Copy a stored file into a container. Returns its path inside. Raises `UnknownFile`."""
        content = await self._store.content(place.record.owner, file_id)
        if content is None:
            raise UnknownFile(NO_FILE.format(file_id))
        try:
            return await self.put(place, content.record.filename, content)
        finally:
            await content.aclose()

    async def put(self, place: ClientContainer, name: str, blocks: AsyncIterable[bytes]) -> str:
        """Write a file of the client's into a container. Returns its path inside. Raises `NoFile` for an odd name,
        `FolderClosed`, and `StoreFull`."""
        try:
            name = await place.files.write(name, blocks)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise StoreFull(f"the disk with the containers is full ({place.box.folder})") from error
        await self._store.note_upload(place.record.owner, place.id, name)
        return name

    async def citations(self, scope: Scope, used: Sequence[str], text: str) -> list[JsonObject]:
        """Return the annotations for the files that a text names; `used` are the containers of its calls."""
        if LINK.search(text) is None:
            return []
        record = await self._store.container_of(scope.owner, scope.lane)
        for container_id in [*reversed(used), *reversed(scope.containers), *([record.id] if record else [])]:
            try:
                place = await self.get(scope.owner, container_id)
                if found := await place.files.citations(text):
                    return found
            except (ContainerError, FolderClosed, OSError):
                continue  # it has ended meanwhile
        return []

    async def check_files(self, owner: str, file_ids: Iterable[str]) -> None:
        """Check that files exist. Raises `UnknownFile`."""
        for file_id in file_ids:
            if await self._store.file(owner, file_id) is None:
                raise UnknownFile(NO_FILE.format(file_id))


def _note(languages: Languages, skills: Sequence[ShownSkill], network: NetworkPolicy | None) -> str:
    """Return what the model is told of a container."""
    return "\n\n".join(filter(None, (languages.sentence, network_note(network), skills_note(skills))))


def _same(one: Reach | None, other: Reach | None) -> bool:
    return other is None if one is None else other is not None and one.same_as(other)


def refused(error: ContainerError, param: str) -> ToolRefused:
    """Return what a client is told of a container that cannot be had; `param` is the field that names it."""
    if isinstance(error, ContainerExpired):
        return ToolRefused(str(error), param, status=404, code="container_expired")
    if isinstance(error, UnknownContainer):
        return ToolRefused(str(error), param, status=404, code="not_found")
    return ToolRefused(str(error), param, status=503, code="container_unavailable")
