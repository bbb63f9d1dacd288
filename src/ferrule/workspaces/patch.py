"""Patches: what a task has changed, written by git in a repository of our own.

Git never sees the workspace: it gets two commits with the old and the new content of what has changed
(git-fast-import(1)), and compares them. So no settings, attributes, hooks or filters of the task can act, and names and
contents are data only.
"""

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from ferrule.containers.removal import remove_tree
from ferrule.workspaces.base import LINK, Base, Entry
from ferrule.workspaces.changes import Change, changes
from ferrule.workspaces.running import git
from ferrule.workspaces.source import WorkspaceError, explained
from ferrule.workspaces.threads import Stop, on_thread
from ferrule.workspaces.tree import Tree, shown

LARGEST_CHANGE = 512 << 20
"""Bytes of all contents, old and new, that one patch compares: more is data and no work on a source, and its patch
would fill the memory."""
RENAMES = 400
"""Files among which git looks for those that were renamed and changed; the time grows with the square."""
OLD, NEW = "refs/heads/old", "refs/heads/new"
DIFF = ("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
_CONFIG = "[core]\nrepositoryformatversion = 0\nbare = true\n"
_LATER_CONFIG = "[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectformat = {}\n"
_FILE = re.compile(rb"^(?=diff --git )", re.MULTILINE)
"""Where the patch of a file begins: no line of a hunk does so, nor of binary data."""
_BLOCK = 1 << 20


async def make_patch(workspace: Path, base: Base, tree: Path, beside: Path) -> str:
    """Return what `git apply` takes to make the base into the workspace; `beside` is a folder for what is needed
    meanwhile. Raises `WorkspaceError`."""
    with explained(beside):
        folder = Path(tempfile.mkdtemp(prefix="patch-", dir=beside))
        try:
            if not await on_thread(lambda stop: _write_stream(folder, workspace, base, tree, stop)):
                return ""
            return await _compared(folder, base, tree)
        finally:
            remove_tree(folder)


async def _compared(folder: Path, base: Base, tree: Path) -> str:
    """Return the patch of what was written to the stream."""
    repository = _new_repository(folder, base.object_format)
    objects = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted_path(tree / ".git/objects")} if base.commit else {}
    with (folder / "stream").open("rb") as stream:
        await git(repository, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", stdin=stream, more=objects)
    patch = await git(repository, *DIFF, "-M", f"-l{RENAMES}", OLD, NEW, more=objects)
    try:
        return patch.decode()
    except UnicodeDecodeError:
        pass
    patch = await git(repository, *DIFF, "--no-renames", OLD, NEW, more=objects)
    (folder / "binary").write_text("* -diff\n")
    attributes = f"core.attributesFile={folder / 'binary'}"
    binary = await git(repository, "-c", attributes, *DIFF, "--no-renames", OLD, NEW, more=objects)
    return "".join(
        _text_of(as_text, as_binary) for as_text, as_binary in zip(_FILE.split(patch), _FILE.split(binary), strict=True)
    )


def _text_of(as_text: bytes, as_binary: bytes) -> str:
    """Return a file's patch as text; as binary data if its content is none in UTF-8."""
    try:
        return as_text.decode()
    except UnicodeDecodeError:
        return as_binary.decode()


def _new_repository(folder: Path, object_format: str) -> str:
    """Make a bare repository; return the option that names it to git."""
    new = folder / "repository"
    for name in ("objects/info", "objects/pack", "refs/heads"):
        (new / name).mkdir(parents=True)
    (new / "config").write_text(_CONFIG if object_format == "sha1" else _LATER_CONFIG.format(object_format))
    (new / "HEAD").write_text(f"ref: {NEW}\n")
    return f"--git-dir={new}"


def _write_stream(folder: Path, workspace: Path, base: Base, tree: Path, stop: Stop) -> bool:
    """Write the old and the new commit for `git fast-import`; False if nothing has changed. Blocking."""
    with Tree(workspace) as ours, Tree(tree) as theirs:
        found = list(changes(ours, theirs, base.entries, stop, workspace))
        if not found:
            return False
        with (folder / "stream").open("wb") as file:
            stream = _Stream(file, stop)
            old = [(each.path, each.before) for each in found if each.before]
            stream.commit(OLD, [(path, entry.mode, stream.old(path, entry, theirs)) for path, entry in old])
            stream.commit(NEW, [(each.path, each.mode, stream.new(each, ours)) for each in found if each.mode])
    return True


class _Stream:
    """Writes what `git fast-import` reads."""

    def __init__(self, file: IO[bytes], stop: Stop) -> None:
        self._file = file
        self._stop = stop
        self._marks = 0
        self._left = LARGEST_CHANGE

    def old(self, path: bytes, entry: Entry, tree: Tree) -> bytes:
        """Return how the content of a base's file is called."""
        return entry.oid.encode() or self._content(path, entry.mode, tree)

    def new(self, change: Change, tree: Tree) -> bytes:
        """Write the new content of a path; return how it is called."""
        return self._content(change.path, change.mode, tree)

    def commit(self, name: str, files: Iterable[tuple[bytes, str, bytes]]) -> None:
        """Write a commit that holds these files: path, mode, and how the content is called."""
        self._file.write(b"commit %s\ncommitter f <f> 0 +0000\ndata 0\n" % name.encode())
        for path, mode, content in files:
            self._file.write(b"M %s %s %s\n" % (mode.encode(), content, _quoted(path)))
        self._file.write(b"\n")

    def _content(self, path: bytes, mode: str, tree: Tree) -> bytes:
        self._stop.check()
        self._marks += 1
        self._file.write(b"blob\nmark :%d\n" % self._marks)
        if mode == LINK:
            target = tree.link(path) or b""
            self._file.write(b"data %d\n%b\n" % (len(target), target))
        else:
            self._copy(path, tree)
        return b":%d" % self._marks

    def _copy(self, path: bytes, tree: Tree) -> None:
        """Write the content of a file, as long as it is now: somebody may still write it."""
        file = tree.file(path)
        if file is None:
            raise WorkspaceError(f"{shown(path)} was removed while the patch was made: end what still runs first")
        with file:
            left = os.fstat(file.fileno()).st_size
            self._left -= left
            if self._left < 0:
                raise WorkspaceError(
                    f"more than {LARGEST_CHANGE >> 20} MiB have changed, up to {shown(path)}: too much for a patch"
                )
            self._file.write(b"data %d\n" % left)
            while left:
                self._stop.check()
                piece = file.read(min(left, _BLOCK)) or b"\0" * min(left, _BLOCK)
                self._file.write(piece)
                left -= len(piece)
            self._file.write(b"\n")


def _quoted(path: bytes) -> bytes:
    """Quote a path as fast-import reads it."""
    return b'"%b"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def _quoted_path(path: Path) -> str:
    """Quote a path for a list of paths."""
    return os.fsdecode(_quoted(os.fsencode(path)))
