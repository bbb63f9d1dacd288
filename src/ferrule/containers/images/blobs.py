"""Where the blobs of an image lie: in a folder, or in a tar archive that is read at any place."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol

from ferrule.containers.images.errors import ImageError, explained, readable
from ferrule.containers.images.limits import MAX_ENTRIES, ImportLimits
from ferrule.containers.images.streams import FilePipe, blocks_of, unpacked
from ferrule.containers.images.tar import RECORD, Kind, TarReader
from ferrule.stdio import write_all

MAX_LINKS = 8
"""Links in a `docker save` archive: equal layers are links to the first one."""
LACKS = "{} lacks {}: fetch the image again"
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_USTAR = slice(257, 262)


class Blobs(Protocol):
    """Named contents."""

    def has(self, name: str) -> bool:
        """Tell whether there is such a content."""
        ...

    def open(self, name: str) -> tuple[IO[bytes], int]:
        """Open one for reading, with its size. Raises `ImageError`."""
        ...


class FolderBlobs:
    """The files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, name: str) -> bool:
        """See `Blobs.has`."""
        return (self._folder / name).is_file()

    def open(self, name: str) -> tuple[IO[bytes], int]:
        """See `Blobs.open`."""
        if not self.has(name):
            raise ImageError(LACKS.format(self._folder, readable(name)))
        return open_regular(self._folder / name)


class TarBlobs:
    """The files of a tar archive."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        reader = TarReader(FilePipe(file))
        for count, entry in enumerate(reader):
            name = os.path.normpath(os.fsdecode(entry.name))
            if count > MAX_ENTRIES:
                raise ImageError(f"{path} has more than {MAX_ENTRIES:,} entries: it is no image")
            if entry.kind is Kind.FILE and entry.extents is None:
                self._places[name] = (reader.offset, entry.size)
            elif entry.kind is Kind.SYMLINK:
                self._links[name] = os.path.normpath(os.path.join(os.path.dirname(name), os.fsdecode(entry.target)))
            elif entry.kind is Kind.LINK:
                self._links[name] = os.path.normpath(os.fsdecode(entry.target))

    def has(self, name: str) -> bool:
        """See `Blobs.has`."""
        return self._resolved(name) in self._places

    def open(self, name: str) -> tuple[IO[bytes], int]:
        """See `Blobs.open`. Only one may be open at a time: they share the file."""
        place = self._places.get(self._resolved(name))
        if place is None:
            raise ImageError(LACKS.format(self._path, readable(name)))
        self._file.seek(place[0])
        return os.fdopen(os.dup(self._file.fileno()), "rb", buffering=0), place[1]

    def _resolved(self, name: str) -> str:
        for _ in range(MAX_LINKS):
            if name not in self._links:
                break
            name = self._links[name]
        return name


def read_all(blobs: Blobs, name: str, limit: int) -> bytes:
    """Return a whole content. Raises `ImageError`, also above `limit` bytes."""
    file, size = blobs.open(name)
    with file:
        if size > limit:
            raise ImageError(f"{readable(name)} has {size:,} bytes; {limit:,} are allowed")
        with explained(name):
            data = b"".join(blocks_of(file, size))
    if len(data) != size:
        raise ImageError(f"{readable(name)} ends too early: fetch the image again")
    return data


def read_blocks(blobs: Blobs, name: str) -> Iterator[bytes]:
    """Yield a content in blocks."""
    file, size = blobs.open(name)
    with file, explained(name):
        yield from blocks_of(file, size)


def open_regular(path: Path) -> tuple[IO[bytes], int]:
    """Open a file that is one, not a pipe that nobody writes into. Raises `ImageError`."""
    with explained(path):
        descriptor = os.open(path, _READ)
        found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise ImageError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb", buffering=0), found.st_size


@contextmanager
def open_blobs(path: Path, scratch: Path | None, limits: ImportLimits) -> Iterator[Blobs]:
    """Open a folder or an archive; one that is packed as a whole is unpacked into `scratch` first, without a name.

    Raises `ImageError`.
    """
    if path.is_dir():
        yield FolderBlobs(path)
        return
    file, size = open_regular(path)
    with file:
        head = file.read(RECORD)
        file.seek(0)
        if len(head) == RECORD and head[_USTAR] == b"ustar":
            yield TarBlobs(path, file)
            return
        with TemporaryFile(dir=scratch, buffering=0) as plain:
            written = 0
            for block in unpacked(blocks_of(file, size), limits):
                written += len(block)
                if written > limits.bytes:
                    raise ImageError(f"{path} unpacks to more than {limits.bytes >> 30} GiB: it is not imported")
                with explained(scratch or path):
                    write_all(plain.fileno(), block)
            if written < 2 * RECORD:
                raise ImageError(NO_IMAGE.format(path))
            plain.seek(0)
            yield TarBlobs(path, plain)


NO_IMAGE = "{} is no image: give an OCI layout (a folder or a tar of it) or what `docker save` writes"
