"""A private folder for one image. It is removed afterwards; where its owner was killed, before the next one is made."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ferrule.locks import try_lock
from ferrule.sync import uninterrupted

PREFIX = "ferrule-image-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@asynccontextmanager
async def private_folder() -> AsyncIterator[str]:
    """Make a folder, and hold its lock: one that nobody holds was left behind. Raises `OSError`."""
    await asyncio.to_thread(_sweep)
    path, lock = _new()
    try:
        yield path
    finally:
        try:
            await uninterrupted(asyncio.to_thread(shutil.rmtree, path, ignore_errors=True))
        finally:
            os.close(lock)


def _new() -> tuple[str, int]:
    while True:
        path = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX))
        with suppress(FileNotFoundError):  # another process took it for left behind before it was locked
            lock = os.open(path, _FOLDER)
            if try_lock(lock) and os.fstat(lock).st_nlink:
                return path, lock
            os.close(lock)


def _sweep() -> None:
    """Remove this user's folders that were left behind."""
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in found:
        with suppress(OSError):  # gone meanwhile, no folder, or another user's
            lock = os.open(path, _FOLDER)
            try:
                if os.fstat(lock).st_uid == os.geteuid() and try_lock(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
