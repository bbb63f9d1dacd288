"""The contents of files, in a folder beside the database, under names of our own making.

A content is complete and on the disk before the database names it, and the database forgets it before it is deleted. So
all that is in the folder without being named there is a remnant, which `sweep` removes when a store is opened.
"""

import asyncio
import hashlib
import os
import re
import stat
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

import msgspec

from ferrule.store.errors import StoreError, TooLarge
from ferrule.store.place import FILE_MODE, FOLDER_MODE, explained, moved
from ferrule.store.records import FileRecord
from ferrule.sync import AsyncClosing

BLOCK = 1 << 20
"""Bytes that are read or written in a thread at a time: fewer would cost more in changing threads than in copying."""

_NAME = re.compile(r"[0-9a-f]{32}")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Received(msgspec.Struct, frozen=True):
    """A content that is on the disk. `md5` in hexadecimal digits."""

    name: str
    bytes: int
    md5: str


class Contents:
    """The folder. It is opened once, so that nothing that is put into its place is ever followed."""

    def __init__(self, database: Path) -> None:
        """Make the folder if there is none. Raises `StoreError`."""
        self.path = Path(f"{database}.files")
        with explained(self.path, "made"):
            with suppress(FileExistsError):
                self.path.mkdir(mode=FOLDER_MODE)
            self._folder = os.open(self.path, _FOLDER)
            os.fchmod(self._folder, FOLDER_MODE)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._folder)

    async def receive(self, chunks: AsyncIterable[bytes], limit: int, param: str = "file") -> Received:
        """Write a content. Raises `TooLarge` above `limit` bytes, and `StoreError`; then nothing is left of it."""
        name = uuid4().hex
        file = await asyncio.to_thread(self._create, name)
        try:
            received = await self._fill(file, name, chunks, limit, param)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._discard, file, name))
            raise
        return received

    def remove(self, names: Iterable[str]) -> None:
        """Delete contents. One that is gone already, or is nothing of ours, is left alone. Blocking."""
        for name in names:
            with suppress(OSError):
                if stat.S_ISREG(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=self._folder)

    def sweep(self, known: Iterable[str]) -> None:
        """Delete what has a name of ours and is not among those known. Blocking."""
        self.remove(name for name in set(os.listdir(self._folder)).difference(known) if _NAME.fullmatch(name))

    def open(self, name: str, size: int) -> IO[bytes]:
        """Open a content. Raises `StoreError` if it is not there, no regular file, or of another size. Blocking."""
        with explained(self.path / name, "read"):
            descriptor = os.open(name, _READ, dir_fd=self._folder)
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size == size:
                return os.fdopen(descriptor, "rb", buffering=0)
            os.close(descriptor)
            raise StoreError(f"the content {self.path / name} was changed by another program")

    def _create(self, name: str) -> IO[bytes]:
        with explained(self.path / name, "written"):
            return os.fdopen(os.open(name, _CREATE, FILE_MODE, dir_fd=self._folder), "wb")

    async def _fill(self, file: IO[bytes], name: str, chunks: AsyncIterable[bytes], limit: int, param: str) -> Received:
        size, digest = 0, hashlib.md5(usedforsecurity=False)

        def write(block: bytes) -> None:
            with explained(self.path / name, "written"):
                file.write(block)
                digest.update(block)

        async for block in _blocks(chunks):
            size += len(block)
            if size > limit:
                raise TooLarge(f"a {param} has at most {limit:,} bytes", param)
            await asyncio.to_thread(write, block)
        await asyncio.to_thread(self._keep, file, name)
        return Received(name, size, digest.hexdigest())

    def _keep(self, file: IO[bytes], name: str) -> None:
        """Bring a content and its name to the disk: clients delete their copies, so a power cut must not take ours."""
        with explained(self.path / name, "written"):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.fsync(self._folder)
            if not os.path.samestat(os.fstat(self._folder), self.path.lstat()):
                raise moved(self.path)

    def _discard(self, file: IO[bytes], name: str) -> None:
        with suppress(OSError):  # what it still holds finds no space, either
            file.close()
        self.remove([name])


class Content(AsyncClosing):
    """A file's content, open: deleting the file does not disturb who reads it. Iterate once, or close it."""

    def __init__(self, record: FileRecord, file: IO[bytes]) -> None:
        self.record = record
        self._file = file

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with self:
            async for block in read_blocks(self._file):
                yield block

    async def aclose(self) -> None:
        """Close the file."""
        self._file.close()


async def read_blocks(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Read a file to its end."""
    while block := await asyncio.to_thread(file.read, BLOCK):
        yield block


async def _blocks(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Gather chunks into blocks."""
    gathered = bytearray()
    async for chunk in chunks:
        gathered += chunk
        if len(gathered) >= BLOCK:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)
