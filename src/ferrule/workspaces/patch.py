"""Patches: what a task has changed, written by git in a repository of our own.

Git never sees the workspace: it gets two commits with the old and the new content of what has changed
(git-fast-import(1)), and compares them. So no settings, attributes, hooks or filters of the task can act, and names and
contents are data only.
"""

import asyncio
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ferrule.containers.removal import remove_tree
from ferrule.sync import uninterrupted
from ferrule.workspaces.base import LINK, Base
from ferrule.workspaces.binary import binary_patch
from ferrule.workspaces.changes import Change, changes
from ferrule.workspaces.cleaning import cleaned, has_attributes
from ferrule.workspaces.contents import Contents, Stream
from ferrule.workspaces.objects import Objects
from ferrule.workspaces.source import explained
from ferrule.workspaces.threads import Stop, on_thread
from ferrule.workspaces.tree import Tree, folders_of

RENAMES = 400
"""Files among which git looks for those that were renamed and changed; the time grows with the square."""
OLD, NEW = "refs/heads/old", "refs/heads/new"
IMPORT = ("-c", "fastimport.unpackLimit=0", "-c", "pack.compression=0", "fast-import", "--quiet")
DIFF = ("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv")
_FILE = re.compile(rb"^(?=diff --git )", re.MULTILINE)
"""Where the patch of a file begins: no line of a hunk does so, nor of binary data."""
_BLANKS = re.compile(rb"^diff --git a/(.* /.*) b/\1$", re.MULTILINE)
"""A name with a blank before a slash, which `git apply` reads only in quotes, and git writes without."""
_INDEX = re.compile(rb"^index ([0-9a-f]+)\.\.([0-9a-f]+)", re.MULTILINE)


async def make_patch(workspace: Path, base: Base, tree: Path, beside: Path) -> str:
    """Return what `git apply` takes to make the base into the workspace; `beside` is a folder for what is needed
    meanwhile. Raises `WorkspaceError`."""
    with explained(beside):
        found = await on_thread(lambda stop: _found(workspace, base, tree, stop))
        if not found:
            return ""
        folder = Path(tempfile.mkdtemp(prefix="patch-", dir=beside))
        try:
            objects = Objects.new(folder / "repository", base, tree)
            attributes = [path for path in base.entries if has_attributes(path)] if base.commit else []
            files = [each.path for each in found if each.mode not in ("", LINK)] if attributes else []
            clean = await cleaned(files, workspace, tree, attributes, objects) if files else {}
            stream = folder / "stream"
            await on_thread(lambda stop: _write(stream, found, clean, workspace, tree, stop))
            await objects.git(*IMPORT, stdin=stream)
            renames = ("--no-renames",) if _is_tangled(found) else ("-M", f"-l{RENAMES}")
            patch = _BLANKS.sub(rb'diff --git "a/\1" "b/\1"', await objects.git(*DIFF, *renames, OLD, NEW))
            return patch.decode() if _is_text(patch) else await _as_text(patch, objects)
        finally:
            await uninterrupted(asyncio.to_thread(remove_tree, folder))


def _found(workspace: Path, base: Base, tree: Path, stop: Stop) -> list[Change]:
    with Tree(workspace) as ours, Tree(tree) as theirs:
        return list(changes(ours, theirs, base.entries, stop, workspace))


def _is_tangled(found: Sequence[Change]) -> bool:
    """Tell whether a file gives way to a folder of its name, or the reverse: `git apply` does not take a link that is
    renamed to a place below itself."""
    gone = {each.path for each in found if not each.mode}
    new = {each.path for each in found if each.mode}
    return any(above in gone for path in new for above in folders_of(path)) or any(
        above in new for path in gone for above in folders_of(path)
    )


def _write(
    stream: Path, found: Sequence[Change], clean: Mapping[bytes, bytes], workspace: Path, tree: Path, stop: Stop
) -> None:
    """Write the old and the new commit for `git fast-import`. Blocking."""
    with Tree(workspace) as ours, Tree(tree) as theirs, stream.open("wb") as file:
        out, contents = Stream(file), Contents(theirs, stop)
        entries = [(each.path, each.before) for each in found if each.before]
        old = [(path, one.mode, one.oid.encode() or out.blob(path, one.mode, contents)) for path, one in entries]
        out.commit(OLD, old)
        contents = Contents(ours, stop)
        files = [(each.path, each.mode) for each in found if each.mode]
        new = [(path, mode, clean.get(path) or out.blob(path, mode, contents)) for path, mode in files]
        out.commit(NEW, new)


async def _as_text(patch: bytes, objects: Objects) -> str:
    """Return a patch as text: where contents are none in UTF-8, as binary data."""
    parts = _FILE.split(patch)
    bad = [number for number, part in enumerate(parts) if not _is_text(part)]
    names = [found.groups() for number in bad if (found := _INDEX.search(parts[number]))]
    wanted = objects.folder / "wanted"
    wanted.write_bytes(b"".join(b"%b\n%b\n" % pair for pair in names))
    blobs = _blobs(await objects.git("cat-file", "--batch", stdin=wanted))
    for number, old, new in zip(bad, blobs, blobs, strict=False):
        parts[number] = binary_patch(parts[number], old, new)
    return b"".join(parts).decode()


def _is_text(part: bytes) -> bool:
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


def _blobs(listed: bytes) -> Iterator[bytes]:
    """Read what `git cat-file --batch` writes; what is missing is nothing."""
    at = 0
    while at < len(listed):
        end = listed.index(b"\n", at)
        *_, kind = head = listed[at:end].split(b" ")
        size = 0 if kind == b"missing" else int(head[2])
        yield listed[end + 1 : end + 1 + size]
        at = end + 1 + (0 if kind == b"missing" else size + 1)
