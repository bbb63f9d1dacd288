"""Workspaces of one process: each is fresh, and removed at the end."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from ferrule.containers.images.writable import copy_tree
from ferrule.sync import uninterrupted
from ferrule.workspaces.base import TREE, Base, entries_of, make_base, read_base
from ferrule.workspaces.mounts import NO_MOUNTS, Mounts
from ferrule.workspaces.patch import make_patch
from ferrule.workspaces.scratch import PRIVATE, Scratch
from ferrule.workspaces.source import Empty, Source, WorkspaceError, explained
from ferrule.workspaces.threads import Stop, on_thread

DEFAULT_NAME = "workspace"
PLACE = "place"
"""The folder in which a workspace lies alone: it may have any name, also that of a layer beside it."""


class Workspace:
    """A folder that a task may do with as it likes."""

    def __init__(self, path: Path, base: Base, tree: Path, beside: Path) -> None:
        self.path = path
        self._base = base
        self._tree = tree
        self._beside = beside

    @property
    def commit(self) -> str:
        """The commit that a repository's workspace starts from; "" without a repository."""
        return self._base.commit

    async def patch(self) -> str:
        """Return what has changed since the workspace was entered, as `git apply` takes it; "" if nothing has.

        Nothing that the task has done to `.git` counts. Raises `WorkspaceError`.
        """
        return await make_patch(self.path, self._base, self._tree, self._beside)


class Workspaces:
    """The workspaces of one process; get it by `open`."""

    def __init__(self, scratch: Scratch, mounts: Mounts) -> None:
        self._scratch = scratch
        self._mounts = mounts
        self._notice = mounts.problem
        self._bases: dict[Source, asyncio.Task[tuple[Path, Base]]] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, scratch: str | os.PathLike[str], mounts: Mounts = NO_MOUNTS) -> "AsyncIterator[Workspaces]":
        """Open a folder that is ours alone: it is made, and removed with the last process that has it open. Removes
        what a dead process has left there. Raises `WorkspaceError`."""
        held = Scratch(scratch)
        workspaces = cls(held, mounts)
        try:
            await on_thread(lambda stop: held.open())
            await workspaces._try_layers()
            yield workspaces
        finally:
            await uninterrupted(workspaces._close())

    @property
    def notice(self) -> str:
        """Why workspaces are whole copies; "" if they are layers over what they start from."""
        return self._notice

    @asynccontextmanager
    async def enter(self, source: Source, *, whole: bool = False) -> AsyncIterator[Workspace]:
        """Make a workspace of this source. It is removed at the end, whatever happens. Raises `WorkspaceError`.

        `whole`: a copy in any case. A container on an image has many ids only where its folders are no layers.
        """
        folder, base = await self._base(source)
        beside = self._scratch.new_folder()
        path = beside / PLACE / _name_of(source)
        try:
            with explained(path):
                workspace = await on_thread(lambda stop: self._fill(path, beside, folder, base, whole, stop))
            yield workspace
        finally:
            await uninterrupted(asyncio.to_thread(self._empty, path, beside))

    def _fill(self, path: Path, beside: Path, folder: Path, base: Base, whole: bool, stop: Stop) -> Workspace:
        path.parent.mkdir(PRIVATE)
        if whole or self._notice:
            copy_tree(folder / TREE, path, check=stop.check)
            base = msgspec.structs.replace(base, entries=entries_of(path, base.entries))
        else:
            self._mounts.lay(folder / TREE, beside, path)
        return Workspace(path, base, folder / TREE, beside)

    def _empty(self, path: Path, beside: Path) -> None:
        if not self._notice and path.is_mount():
            self._mounts.lift(path)
        self._scratch.remove(beside)

    async def _try_layers(self) -> None:
        """Find out whether this disk takes layers: those that are layers themselves do not."""
        if self._notice:
            return
        try:
            async with self.enter(Empty()) as workspace:
                (workspace.path / "try").touch()
        except (WorkspaceError, OSError) as error:
            self._notice = f"workspaces are copied: {self._scratch.folder} takes no layers ({error})"

    async def _base(self, source: Source) -> tuple[Path, Base]:
        """Return the base of a source, which the first that asks makes."""
        making = self._bases.get(source)
        if making is None:
            making = self._bases[source] = asyncio.create_task(self._make(source))
            making.add_done_callback(_forgetting(self._bases, source))
        return await asyncio.shield(making)

    async def _make(self, source: Source) -> tuple[Path, Base]:
        folder = self._scratch.bases / _key_of(source)
        with explained(folder):
            async with self._scratch.making(folder):
                if not folder.exists():
                    new = self._scratch.new_folder()
                    await make_base(new, source, self._scratch.number)
                    new.rename(folder)
            return folder, await on_thread(lambda stop: read_base(folder))

    async def _close(self) -> None:
        for making in tuple(self._bases.values()):
            making.cancel()
        await asyncio.gather(*self._bases.values(), return_exceptions=True)
        await asyncio.to_thread(self._scratch.close)


def _forgetting(
    bases: dict[Source, asyncio.Task[tuple[Path, Base]]], source: Source
) -> Callable[[asyncio.Task[tuple[Path, Base]]], None]:
    """Let a base that could not be made be tried again."""

    def forget(making: asyncio.Task[tuple[Path, Base]]) -> None:
        if making.cancelled() or making.exception() is not None:
            bases.pop(source, None)

    return forget


def _key_of(source: Source) -> str:
    """Return the name of a source's base: one for each kind and place."""
    place = "" if isinstance(source, Empty) else os.path.realpath(os.path.expanduser(source.path))
    digest = hashlib.sha256(os.fsencode(place), usedforsecurity=False).hexdigest()
    return f"{type(source).__name__.lower()}-{digest[:16]}"


def _name_of(source: Source) -> str:
    """Return how a workspace's folder is called: as the source, since programs may look at the name."""
    if isinstance(source, Empty):
        return DEFAULT_NAME
    name = os.path.basename(os.path.realpath(os.path.expanduser(source.path))).removesuffix(".git")
    return DEFAULT_NAME if name in ("", ".", "..") else name
