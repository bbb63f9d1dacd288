"""Unpack the layers of an image into a folder, as root or as anybody.

https://github.com/opencontainers/image-spec/blob/main/layer.md. Every path is reached from the open root, one folder
at a time; links on the way are followed as they are inside, so nothing is written outside, whatever an archive says.
What a container does not need is left out and counted: devices, named pipes, attributes other than a user's own.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.containers.images.errors import ImageError, explained, readable
from ferrule.containers.images.folders import FOLDER_MODE, OPEN, Folders, names_in, remove, shown
from ferrule.containers.images.folders import Path as Parts
from ferrule.containers.images.limits import MAX_DEPTH, MAX_NAME_BYTES, ImportLimits
from ferrule.containers.images.owners import MOST, Owner
from ferrule.containers.images.source import ImageSource, Layer
from ferrule.containers.images.streams import Pipe, unpacked, verified
from ferrule.containers.images.tar import Entry, Kind, TarReader
from ferrule.stdio import write_all

WHITEOUT, OPAQUE, AUFS = b".wh.", b".wh..wh..opq", b".wh..wh."
"""How a layer says that a file is gone, that a folder begins anew; names that only AUFS needs."""
FILE_NEEDS, FOLDER_NEEDS = stat.S_IRUSR | stat.S_IWUSR, stat.S_IRWXU
"""Permissions that let the owner copy and remove all that is unpacked."""
SET_IDS = stat.S_ISUID | stat.S_ISGID
"""Left away from files: on this machine they would be somebody else's rights. The table of owners keeps them."""
OWN_ATTRIBUTES = b"user."
OVERLAY_ATTRIBUTES = b"user.overlay."
"""They would change what an overlay file system makes of the folder."""
TOO_DEEP = "a layer has a path of {} folders; {} are allowed"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_ATTRIBUTES = (errno.ENOTSUP, errno.EPERM, errno.ERANGE, errno.E2BIG, errno.ENOSPC, errno.EINVAL)
_PLURALS = {Kind.DEVICE: "devices", Kind.FIFO: "named pipes"}


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of unpacking. `owned`: the files belong to those whom the layers name. `left_out`: what was left out,
    and how often."""

    size: int
    entries: int
    owned: bool
    owners: dict[Parts, Owner]
    left_out: dict[str, int]


def unpack(source: ImageSource, root: Path, limits: ImportLimits, *, own: bool = False) -> Unpacked:
    """Unpack all layers into the empty folder `root`. Blocking; memory stays bounded.

    `own`: give the files to the users that the layers name. Only root can; containers that know one user only could not
    read what is another's.
    Raises `ImageError`; then some of it may be there.
    """
    with explained(root):
        folder = os.open(root, OPEN)
    try:
        target = _Target(folder, limits, own)
        for layer in source.layers:
            target.apply(_plain(source, layer, limits))
        return target.finish()
    finally:
        os.close(folder)


def _plain(source: ImageSource, layer: Layer, limits: ImportLimits) -> Pipe:
    """Return a layer's archive, whose digest is checked at its end."""
    return Pipe(verified(unpacked(source.packed(layer), limits), layer.diff_id))


class _Target:
    """The folder, and what has been put there."""

    def __init__(self, root: int, limits: ImportLimits, own: bool) -> None:
        self._root, self._limits, self._own = root, limits, own
        self._folders = Folders(root)
        self._owners: dict[Parts, Owner] = {}
        self._times: dict[Parts, int] = {}
        self._left_out: Counter[str] = Counter()
        self._size = self._entries = self._name_bytes = 0
        self._new: set[bytes] = set()
        """Paths that the present layer has made: its own whiteouts do not concern them."""

    def apply(self, archive: Pipe) -> None:
        """Unpack one layer."""
        self._new.clear()
        reader = TarReader(archive)
        try:
            for entry in reader:
                self._count(entry)
                with explained(entry.name):
                    self._put(entry, reader)
            archive.drain()
        finally:
            self._folders.close()

    def finish(self) -> Unpacked:
        """Give folders their times, which changed while files were put into them."""
        for path, modified in self._times.items():
            with suppress(FileNotFoundError, ImageError), explained(shown(path)):
                os.utime(self._folders.at(path, make=False), ns=(modified, modified))
        self._folders.close()
        return Unpacked(
            size=self._size,
            entries=self._entries,
            owned=self._own,
            owners=self._owners,
            left_out=dict(self._left_out),
        )

    def _count(self, entry: Entry) -> None:
        self._entries += 1
        self._size += entry.size
        self._name_bytes += len(entry.name)
        limits = self._limits
        if self._entries > limits.entries:
            raise ImageError(f"the image has more than {limits.entries:,} files: it is not imported")
        if self._size > limits.bytes:
            raise ImageError(f"the image unpacks to more than {limits.bytes:,} bytes: it is not imported")
        if self._name_bytes > MAX_NAME_BYTES:
            raise ImageError(f"the names in the image have more than {MAX_NAME_BYTES:,} bytes: it is not imported")

    def _put(self, entry: Entry, reader: TarReader) -> None:
        path = safe_parts(entry.name)
        if not path:
            if entry.kind is Kind.FOLDER:
                self._settle_folder(self._root, path, entry)
            return
        path = self._real(path)
        *above, name = path
        if (name.startswith(AUFS) and name != OPAQUE) or any(part.startswith(AUFS) for part in above):
            return
        if any(part.startswith(WHITEOUT) for part in above):
            raise ImageError(f"a layer has {shown(path)}, below a name that means a removed file: build it anew")
        if name.startswith(WHITEOUT):
            self._white_out(path)
            return
        if entry.kind in _PLURALS:
            self._left_out[_PLURALS[entry.kind]] += 1
            self._clear(path)
            return
        self._remember(path)
        self._make(entry, reader, path)

    def _real(self, path: Parts) -> Parts:
        """Return where an entry lies: below what its folders' links lead to."""
        found = (*self._folders.real(path[:-1]), *path[-1:])
        if len(found) > MAX_DEPTH:
            raise ImageError(TOO_DEEP.format(len(found), MAX_DEPTH))
        return found

    def _remember(self, path: Parts) -> None:
        whole = b"/".join(path)
        while whole and whole not in self._new:
            self._new.add(whole)
            whole = whole.rpartition(b"/")[0]

    def _is_new(self, path: Parts) -> bool:
        return b"/".join(path) in self._new

    def _make(self, entry: Entry, reader: TarReader, path: Parts) -> None:
        folder, name = self._folders.at(path[:-1], make=True), path[-1]
        if entry.kind is Kind.FOLDER:
            self._folder(folder, name, path, entry)
            return
        if entry.kind is Kind.LINK:
            self._link(name, path, self._real(safe_parts(entry.target)))
            return
        if entry.kind is Kind.SYMLINK:
            self._replace(path, lambda: os.symlink(safe_text(entry.target), name, dir_fd=folder))
            self._settle_link(folder, name, path, entry)
            return
        descriptor = self._replace(path, lambda: os.open(name, _NEW, 0o600, dir_fd=folder))
        try:
            _fill(descriptor, entry, reader)
            self._settle(descriptor, path, entry, FILE_NEEDS, SET_IDS)
            os.utime(descriptor, ns=(entry.modified_ns, entry.modified_ns))
        finally:
            os.close(descriptor)

    def _folder(self, above: int, name: bytes, path: Parts, entry: Entry) -> None:
        try:
            os.mkdir(name, FOLDER_MODE, dir_fd=above)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=above)
                os.mkdir(name, FOLDER_MODE, dir_fd=above)
        self._settle_folder(self._folders.at(path, make=False), path, entry)

    def _settle_folder(self, folder: int, path: Parts, entry: Entry) -> None:
        self._settle(folder, path, entry, FOLDER_NEEDS, 0)
        self._times[path] = entry.modified_ns

    def _link(self, name: bytes, path: Parts, target: Parts) -> None:
        """Make a hard link to what is there already."""
        if not target or target == path:
            raise ImageError(f"{shown(path)} is a hard link to {shown(target)}, which cannot be: build the image anew")
        try:
            source = os.open(b".", OPEN, dir_fd=self._folders.at(target[:-1], make=False))
        except FileNotFoundError as error:
            raise ImageError(_no_target(path, target)) from error
        try:
            if stat.S_ISDIR(os.stat(target[-1], dir_fd=source, follow_symlinks=False).st_mode):
                raise ImageError(f"{shown(path)} is a hard link to the folder {shown(target)}: build the image anew")
            folder = self._folders.at(path[:-1], make=True)

            def make() -> None:
                os.link(target[-1], name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

            self._replace(path, make)
        except FileNotFoundError as error:
            raise ImageError(_no_target(path, target)) from error
        finally:
            os.close(source)
        owner = self._owners.get(target)
        if owner is not None:
            self._owners[path] = owner

    def _replace(self, path: Parts, make: Callable[[], int | None]) -> int:
        """Make a file in the place of whatever is there."""
        try:
            made = make()
        except FileExistsError:
            self._clear(path)
            made = make()
        return -1 if made is None else made

    def _clear(self, path: Parts) -> None:
        """Remove what is at a path, if something is."""
        self._folders.forget(path)
        with suppress(FileNotFoundError):
            remove(path[-1], self._folders.at(path[:-1], make=False), path, self._gone)

    def _gone(self, path: Parts) -> None:
        self._owners.pop(path, None)
        self._times.pop(path, None)

    def _white_out(self, path: Parts) -> None:
        *above, name = path
        if name == OPAQUE:
            self._hide_below(tuple(above))
            return
        hidden = name.removeprefix(WHITEOUT)
        if hidden in (b"", b".", b".."):
            raise ImageError(f"a layer removes {shown(path)}, which is no name: build the image anew")
        self._hide((*above, hidden))

    def _hide(self, path: Parts) -> None:
        """Remove what the layers below have at a path; what this layer has made there stays."""
        if self._is_new(path):
            self._hide_below(path)
        else:
            self._clear(path)

    def _hide_below(self, path: Parts) -> None:
        try:
            folder = self._folders.at(path, make=False)
        except FileNotFoundError:
            return
        except ImageError:
            if self._is_new(path):  # a file of this layer, which has replaced the folder
                return
            raise
        for name in names_in(folder):
            self._hide((*path, name))

    def _settle(self, descriptor: int, path: Parts, entry: Entry, needs: int, without: int) -> None:
        """Give an open file its owner, mode and attributes, and note what it cannot have."""
        self._give(entry, path, lambda: os.fchown(descriptor, entry.user, entry.group))
        mode = (entry.mode & ~without) | needs
        os.fchmod(descriptor, mode)
        self._note(path, entry, mode)
        for name, value in entry.attributes.items():
            if not name.startswith(OWN_ATTRIBUTES) or name.startswith(OVERLAY_ATTRIBUTES) or b"\0" in name:
                self._left_out[f"attributes {readable(name.partition(b'.')[0])}.*"] += 1
                continue
            try:
                os.setxattr(descriptor, name, value)
            except OSError as error:
                if error.errno not in _NO_ATTRIBUTES:
                    raise
                self._left_out["attributes user.*"] += 1

    def _settle_link(self, folder: int, name: bytes, path: Parts, entry: Entry) -> None:
        self._give(entry, path, lambda: os.chown(name, entry.user, entry.group, dir_fd=folder, follow_symlinks=False))
        self._note(path, entry, entry.mode)
        times = (entry.modified_ns, entry.modified_ns)
        os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)

    def _give(self, entry: Entry, path: Parts, change: Callable[[], None]) -> None:
        if max(entry.user, entry.group) > MOST:
            raise ImageError(f"{shown(path)} belongs to {entry.user}:{entry.group}, which no user is: build it anew")
        if not self._own:
            return
        try:
            change()
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise
            self._own = False  # root of a namespace that lacks these users: the table has to do

    def _note(self, path: Parts, entry: Entry, mode: int) -> None:
        if entry.user or entry.group or entry.mode != mode:
            self._owners[path] = Owner(entry.user, entry.group, entry.mode)
        else:
            self._owners.pop(path, None)


def _fill(descriptor: int, entry: Entry, reader: TarReader) -> None:
    """Write a file's content; holes stay holes."""
    pieces = reader.pieces()
    if entry.extents is None:
        for piece in pieces:
            write_all(descriptor, piece)
        return
    extents = iter(entry.extents)
    left = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            while not left:
                offset, left = next(extents)
                os.lseek(descriptor, offset, os.SEEK_SET)
            written = os.write(descriptor, view[:left])
            left -= written
            view = view[written:]
    os.ftruncate(descriptor, entry.size)


def safe_parts(name: bytes) -> Parts:
    """Take an entry's name apart. Raises `ImageError` if it leads out of the root or is no name."""
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if (name.startswith(b"/") and parts) or b".." in parts or b"\0" in name:
        raise ImageError(f"a layer has the path {readable(name)!r}, which leads out of the image: do not trust it")
    if len(parts) > MAX_DEPTH:
        raise ImageError(TOO_DEEP.format(len(parts), MAX_DEPTH))
    return parts


def safe_text(target: bytes) -> bytes:
    """Return a link's target as it is: it is never followed here. Raises `ImageError` if it cannot be one."""
    if not target or b"\0" in target:
        raise ImageError("a layer has a symbolic link without a target: build the image anew")
    return target


def _no_target(path: Parts, target: Parts) -> str:
    return f"{shown(path)} is a hard link to {shown(target)}, which is not there: build the image anew"
