"""Where a batch has its workspaces, and how they go."""

import asyncio
import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from ferrule.protocol.errors import UsageError
from ferrule.workspaces import WorkspaceError, Workspaces

WORK, ROLLOUTS = "work", "rollouts-"
"""In the caches of a cluster's node: the workspaces, and before a random name a worker's rollouts."""


def folder_apart(name: str | os.PathLike[str]) -> Path:
    """Return a folder in the user's caches for the batch of this name, on whichever machine."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "ferrule" / "batch" / hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


async def try_place(scratch: str | os.PathLike[str]) -> None:
    """Raise `UsageError` if no workspaces can be kept there."""
    try:
        async with Workspaces.open(Path(scratch)):
            pass
    except WorkspaceError as error:
        raise UsageError(str(error)) from error


async def clear(scratch: str | os.PathLike[str]) -> None:
    """Remove the workspaces that killed workers have left there, and the folder if nobody has it open."""
    with suppress(UsageError):
        await try_place(scratch)


async def clear_node(scratch: str | os.PathLike[str]) -> None:
    """Remove what killed workers of a cluster have left on this machine, of the batch that has its workspaces in
    `scratch`. While one of them lives, its files stay, and so do the rollouts of all."""
    place = folder_apart(scratch)
    if not place.exists():
        return
    await clear(place / WORK)
    if not (place / WORK).exists():
        for folder in place.glob(f"{ROLLOUTS}*"):
            await asyncio.to_thread(remove_rollouts, folder)


def remove_rollouts(folder: str | os.PathLike[str]) -> None:
    """Remove the rollouts of a worker that sends them, and the folder around them with the last worker's. Blocking."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # another worker on this machine needs it
        Path(folder).parent.rmdir()
