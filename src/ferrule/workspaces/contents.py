"""Hand contents of files over to git: as a stream of two commits (git-fast-import(1)), or as files in a folder."""

import os
from collections.abc import Callable, Iterable
from typing import IO

from ferrule.workspaces.base import LINK
from ferrule.workspaces.source import WorkspaceError
from ferrule.workspaces.threads import Stop
from ferrule.workspaces.tree import Tree, shown

LARGEST_CHANGE = 512 << 20
"""Bytes of all contents that one patch compares: more is data and no work on a source, and its patch would fill the
memory."""
_BLOCK = 1 << 20


class Contents:
    """Reads files of a tree, up to a bound for all of them."""

    def __init__(self, tree: Tree, stop: Stop) -> None:
        self._tree = tree
        self._stop = stop
        self._left = LARGEST_CHANGE

    def copy(self, path: bytes, out: IO[bytes], head: Callable[[int], bytes] = lambda size: b"") -> None:
        """Write the head for a content of that size, and a file as long as it is now: somebody may still write it.
        Raises `WorkspaceError`."""
        file = self._tree.file(path)
        if file is None:
            raise WorkspaceError(f"{shown(path)} was removed while the patch was made: end what still runs first")
        with file:
            left = os.fstat(file.fileno()).st_size
            self._left -= left
            if self._left < 0:
                much = f"more than {LARGEST_CHANGE >> 20} MiB have changed"
                raise WorkspaceError(f"{much}, up to {shown(path)}: that is too much for a patch")
            out.write(head(left))
            while left:
                self._stop.check()
                piece = file.read(min(left, _BLOCK)) or bytes(min(left, _BLOCK))
                out.write(piece)
                left -= len(piece)

    def link(self, path: bytes) -> bytes:
        """Return the target of a link."""
        return self._tree.link(path) or b""


class Stream:
    """Writes what `git fast-import` reads."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._marks = 0

    def blob(self, path: bytes, mode: str, contents: Contents) -> bytes:
        """Write a content; return how it is called."""
        self._marks += 1
        self._out.write(b"blob\nmark :%d\n" % self._marks)
        if mode == LINK:
            target = contents.link(path)
            self._out.write(_data(len(target)) + target)
        else:
            contents.copy(path, self._out, _data)

        self._out.write(b"\n")
        return b":%d" % self._marks

    def commit(self, name: str, files: Iterable[tuple[bytes, str, bytes]]) -> None:
        """Write a commit that holds these files: path, mode, and how the content is called."""
        self._out.write(b"commit %b\ncommitter f <f> 0 +0000\ndata 0\n" % name.encode())
        for path, mode, content in files:
            self._out.write(b"M %b %b %b\n" % (mode.encode(), content, quoted(path)))
        self._out.write(b"\n")


def _data(size: int) -> bytes:
    return b"data %d\n" % size


def quoted(path: bytes) -> bytes:
    """Quote a path as git reads it."""
    return b'"%b"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
