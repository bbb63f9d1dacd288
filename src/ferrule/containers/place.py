"""Where containers lie on disk: one folder each, held by a lock of the process that runs it.

    PLACE/ID/record.json   what it is; its time of change is the last use
             lock          locked while a process has it
             data/ tmp/ home/   what is mounted inside
             skills/            what is shown read-only inside
             upper/ work/       the layer over an image
             root/              a copy of it, where there can be no layer, or a root with users of its own

The default place is `/var/tmp/ferrule-UID/`, because commands see the path of what is mounted: it tells nothing of the
user's folders. `FERRULE_HOME` decides on the folder below it, so that two homes share nothing.
"""

import asyncio
import hashlib
import json
import logging
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from ferrule.containers.errors import ContainerError, UnknownContainer
from ferrule.containers.host import ContainerInfo, ContainerSettings
from ferrule.containers.own_root import make_root
from ferrule.containers.removal import remove_tree
from ferrule.locks import hold, try_lock
from ferrule.sync import uninterrupted

PREFIX = "cntr_"
SHARED = "/var/tmp"
RECORD, LOCK = "record.json", "lock"
SKILLS = "skills"
FOLDERS = ("data", "tmp", "home", SKILLS)
COPY = "root"
LAYERS = ("upper", "work")
"""Folders with what commands change of an image."""
IN_USE = "{} is in use by another process of yours: end that one first"
_ID_BYTES = 16
log = logging.getLogger("ferrule.containers")


def default_place(home: str) -> Path:
    """Return the place that belongs to one `FERRULE_HOME`."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(home))).hexdigest()[:12]
    return _own_folder() / name


def _own_folder() -> Path:
    """Return this user's folder among those of all. Anybody can take its usual name: then it has another one."""
    usual = Path(SHARED, f"ferrule-{os.getuid()}")
    if not os.path.lexists(usual) or _is_ours(usual):
        return usual
    others = sorted(path for path in Path(SHARED).glob(f"{usual.name}-*") if _is_ours(path))
    return others[0] if others else Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=SHARED))


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def make_place(place: Path) -> None:
    """Create the place, closed to others. Raises `ContainerError` if somebody else has it."""
    try:
        for folder in (place.parent, place) if place.parent.parent == Path(SHARED) else (place,):
            folder.mkdir(mode=0o700, parents=folder is place, exist_ok=True)
            if not _is_ours(folder):
                raise ContainerError(f"{folder} belongs to somebody else or others can write it: remove it")
    except OSError as error:
        raise ContainerError(f"containers cannot be kept in {place}: {error.strerror}") from error


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a container on disk."""

    id: str
    created_at: float
    settings: ContainerSettings


class Slot:
    """The folder of one container, which is ours as long as we hold its lock."""

    def __init__(self, folder: Path, record: Record, lock: int) -> None:
        self.folder, self.record = folder, record
        self._lock = lock
        self.last_used = time.time()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def skills(self) -> Path:
        return self.folder / SKILLS

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def copy(self) -> Path:
        """Where a copy of an image lies, once there is one."""
        return self.folder / COPY

    def touch(self) -> None:
        """Note a use, for whoever looks at the disk later."""
        self.last_used = time.time()
        with suppress(FileNotFoundError):
            os.utime(self.folder / RECORD, (self.last_used, self.last_used))

    def publish(self) -> None:
        """Write the record: from now on others see it, and it outlives us. Raises `ContainerError`; then remove it."""
        try:
            (self.folder / RECORD).write_text(json.dumps(msgspec.to_builtins(self.record)), encoding="ascii")
        except OSError as error:
            raise _not_made(self.folder.parent, error) from error

    def release(self) -> None:
        """Let go of it; the files stay."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def keep(self) -> None:
        """Let it outlive its process although it was made as a temporary one. Raises `ContainerError`."""
        settings = msgspec.structs.replace(self.record.settings, temporary=False)
        self.record = msgspec.structs.replace(self.record, settings=settings)
        self.publish()

    def remove(self) -> None:
        """Remove it. Blocking, as long as there are files. Nothing may run in it any more."""
        try:
            _remove(self.folder)
        finally:
            self.release()


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold the lock of the place: nobody is making a container, or looking for those that nobody has."""
    with hold(place / LOCK, lambda: make_place(place)):
        yield


def new_slot(place: Path, settings: ContainerSettings) -> Slot:
    """Make the folder of a new container, which nobody sees before it is published. Raises `ContainerError`."""
    try:
        with _locked(place):
            return _new_slot(place, settings)
    except OSError as error:
        raise _not_made(place, error) from error


async def in_our_hands(make: Callable[[], Slot], undo: Callable[[Slot], None]) -> Slot:
    """Make or take a slot in a thread; undo it if nobody waits for it any more, however often the caller is cancelled:
    some frameworks do so again and again. Raises as `make` does."""
    making = asyncio.create_task(asyncio.to_thread(make))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await uninterrupted(_undone(making, undo))
        raise


async def _undone(making: "asyncio.Task[Slot]", undo: Callable[[Slot], None]) -> None:
    await asyncio.wait([making])
    if making.exception() is None:
        await asyncio.to_thread(undo, making.result())


def _not_made(place: Path, error: OSError) -> ContainerError:
    return ContainerError(f"the container's folder cannot be made in {place}: {error.strerror}")


def _new_slot(place: Path, settings: ContainerSettings) -> Slot:
    record = Record(id=PREFIX + secrets.token_hex(_ID_BYTES), created_at=time.time(), settings=settings)
    folder = place / record.id
    folder.mkdir(mode=0o700)
    with ExitStack() as undo:
        undo.callback(remove_tree, folder)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        undo.callback(os.close, lock)
        try_lock(lock)
        for name in (*FOLDERS, *(LAYERS if settings.root else ())):
            (folder / name).mkdir(mode=0o755)
        (folder / "tmp").chmod(0o1777)
        if settings.users:
            make_root(folder / COPY, settings.user)
        undo.pop_all()
    return Slot(folder, record, lock)


def take_slot(place: Path, container_id: str) -> Slot:
    """Take over a container that no process has. Raises `UnknownContainer`, or `ContainerError` if one has it."""
    folder = place / container_id
    unknown = UnknownContainer(f"there is no container {container_id}")
    if not _is_id(container_id) or not folder.is_dir():
        raise unknown
    with _locked(place):  # else a sweep that looks at it looks like a user
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise unknown from error
        is_ours = try_lock(lock)
    try:
        if not is_ours:
            raise ContainerError(IN_USE.format(container_id))
        slot = Slot(folder, _record(folder), lock)
        slot.skills.mkdir(mode=0o755, exist_ok=True)  # an older Ferrule made none
        slot.last_used = (folder / RECORD).stat().st_mtime
    except (OSError, msgspec.DecodeError) as error:
        os.close(lock)
        raise unknown from error
    except ContainerError:
        os.close(lock)
        raise
    return slot


def on_disk(place: Path) -> Iterator[ContainerInfo]:
    """Yield the containers of all processes, oldest first."""
    found = []
    for folder in _folders(place):
        with suppress(OSError, msgspec.DecodeError):
            found.append((_record(folder), (folder / RECORD).stat().st_mtime))
    for record, used in sorted(found, key=lambda one: one[0].created_at):
        yield ContainerInfo(
            id=record.id, created_at=record.created_at, last_used=used, status="running", settings=record.settings
        )


def sweep(place: Path) -> float | None:
    """Remove what no process has any more and nobody will ask for: expired, temporary, or made only half. Blocking.

    Returns when the first of the others is going to expire; None if there is none."""
    if not place.is_dir():
        return None
    with _locked(place):
        over = [held for folder in _folders(place) if (held := _held_if_over(folder)) is not None]
    for folder, lock in over:
        try:
            _remove(folder)
        except OSError as error:  # it stays, and must not be in the way of others
            log.warning("the old container %s cannot be removed: %s", folder, error.strerror)
        finally:
            os.close(lock)
    soonest = min((info.expires_at for info in on_disk(place)), default=None)
    tidy(place)
    return soonest


def _remove(folder: Path) -> None:
    """Remove a container's folder: the record first, so that nobody lists it from now on, and the lock last, or whoever
    looks at the folder meanwhile would make a new one."""
    (folder / RECORD).unlink(missing_ok=True)
    for name in os.listdir(folder) if folder.is_dir() else ():
        if (folder / name).is_dir():
            remove_tree(folder / name)
    with _locked(folder.parent):
        remove_tree(folder)


def tidy(place: Path) -> None:
    """Remove the place if it is empty."""
    if not place.is_dir():
        return
    with _locked(place):
        if os.listdir(place) == [LOCK]:
            (place / LOCK).unlink()
            place.rmdir()
    if place.parent.parent == Path(SHARED):
        with suppress(OSError):  # the other homes' places
            place.parent.rmdir()


def _held_if_over(folder: Path) -> tuple[Path, int] | None:
    """Lock a container that nobody has and that is over. Hold the lock of the place: else it may be half made only
    now."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(lock) and _is_over(folder):
        return folder, lock
    os.close(lock)
    return None


def _is_over(folder: Path) -> bool:
    try:
        record, used = _record(folder), (folder / RECORD).stat().st_mtime
    except (OSError, msgspec.DecodeError):
        return True
    return record.settings.temporary or used + record.settings.idle_seconds < time.time()


def _record(folder: Path) -> Record:
    """Read a record, by `json`, since a path that is no UTF-8 is text with surrogates. Raises `OSError` and
    `DecodeError`."""
    try:
        return msgspec.convert(json.loads((folder / RECORD).read_bytes()), Record)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error


def _folders(place: Path) -> list[Path]:
    try:
        return [place / name for name in os.listdir(place) if _is_id(name)]
    except OSError:
        return []


def _is_id(name: str) -> bool:
    rest = name.removeprefix(PREFIX)
    return rest != name and len(rest) == 2 * _ID_BYTES and not set(rest) - set("0123456789abcdef")
