"""The content of changed files as git keeps it, where the base's attributes ask for another one (gitattributes(5):
`text`, `eol`, `ident`, `working-tree-encoding`).

Git reads the changed files in a folder of ours, beside the `.gitattributes` of the base: what the task made of those
decides nothing, and no filter is known there.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ferrule.workspaces.contents import Contents
from ferrule.workspaces.objects import Objects
from ferrule.workspaces.run_git import GitFailed
from ferrule.workspaces.threads import Stop, on_thread
from ferrule.workspaces.tree import Tree

ATTRIBUTES = b".gitattributes"


def has_attributes(path: bytes) -> bool:
    """Tell whether a path is that of a file with attributes."""
    return path.rpartition(b"/")[2] == ATTRIBUTES


async def cleaned(
    paths: Sequence[bytes], workspace: Path, tree: Path, attributes: Iterable[bytes], objects: Objects
) -> dict[bytes, bytes]:
    """Return the object that holds the clean content of each of these files; `attributes` are those of the base. A file
    that git cannot clean is left out. Raises `WorkspaceError`, `OSError`."""
    stage = _Stage(objects, objects.folder / "stage")
    staged = await on_thread(lambda stop: stage.fill(paths, workspace, tree, attributes, stop))
    if not await stage.add(staged):
        staged = [path for path in staged if await stage.add([path])]
    listed = await stage.git("ls-files", "--stage", "-z")
    found = (line.partition(b"\t") for line in listed.split(b"\0")[:-1])
    names = {path: head.split(b" ")[1] for head, _, path in found}
    return {path: names[path] for path in staged}


class _Stage(msgspec.Struct, frozen=True):
    """The folder of ours, and an index beside it."""

    objects: Objects
    folder: Path

    def fill(
        self, paths: Iterable[bytes], workspace: Path, tree: Path, attributes: Iterable[bytes], stop: Stop
    ) -> list[bytes]:
        """Copy files there; return those that have a place beside the base's attributes. Blocking."""
        # Of a file that was committed with CRLF git keeps them, and only the index tells.
        self._index.write_bytes((tree / ".git/index").read_bytes())
        with Tree(workspace) as ours, Tree(tree) as theirs:
            for path in attributes:
                self._copy(path, Contents(theirs, stop))
            contents = Contents(ours, stop)
            return [path for path in paths if not has_attributes(path) and self._copy(path, contents)]

    def _copy(self, path: bytes, contents: Contents) -> bool:
        place = os.path.join(os.fsencode(self.folder), path)
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with Path(os.fsdecode(place)).open("xb") as out:
                contents.copy(path, out)
        except (FileExistsError, NotADirectoryError):
            return False
        return True

    async def add(self, paths: Iterable[bytes]) -> bool:
        """Make objects of these files; False if one of them cannot be."""
        listed = self.folder.with_suffix(".paths")
        listed.write_bytes(b"".join(path + b"\0" for path in paths))
        try:
            await self.git("update-index", "--add", "--replace", "-z", "--stdin", stdin=listed)
        except GitFailed:
            return False
        return True

    async def git(self, *words: str, stdin: Path | None = None) -> bytes:
        """Run git in the folder."""
        more = {"GIT_WORK_TREE": str(self.folder), "GIT_INDEX_FILE": str(self._index)}
        return await self.objects.git(*words, stdin=stdin, more=more)

    @property
    def _index(self) -> Path:
        return self.folder.with_suffix(".index")
