"""Read untrusted files: regular ones only, up to a limit, without waiting for anything.

`read_file` reads wherever a path leads, as for the user's own files. `read_inside` reads below a folder and never
leaves it: each part of the path is opened in the folder before it without following links. Links are resolved here, and
may lead only to other places below the folder. Nobody can make it leave by changing the path meanwhile.
"""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

MAX_LINKS = 40
"""Links on the way to one file, as many as the kernel follows."""
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK = 64 << 10
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class Unreadable(Exception):
    """The file exists but is not read. The text continues a sentence after its name: "is a named pipe, not a file"."""


def read_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """Read the file that `path` leads to.

    Raises `FileNotFoundError`, and `Unreadable` above `limit` bytes and for anything but a regular file.
    """
    with _explained():
        _must_be_file(os.stat(path).st_mode)
        return _read(os.open(path, _FILE), limit, cut=False)


def read_inside(
    top: str, path: str, limit: int, *, cut: bool = False, check: Callable[[int], None] = lambda folder: None
) -> bytes:
    """Read the file `path`, which is relative to the folder `top` (a real path) and lies below it. `check` gets the
    descriptor of the folder, and raises `OSError` to refuse it.

    Raises `FileNotFoundError`, also if a folder on the way is missing, and `Unreadable` above `limit` bytes (with
    `cut`, the first `limit` bytes are returned), for anything but a regular file, and for a link that leads out.
    """
    with _explained(), _opened(top) as folders:
        check(folders[0])
        name = _walk(folders, top, path)
        if name is None:
            raise Unreadable("is a folder, not a file")
        return _read(os.open(name, _FILE | os.O_NOFOLLOW, dir_fd=folders[-1]), limit, cut=cut)


def names_inside(top: str, path: str, limit: int) -> list[tuple[str, bool]]:
    """List the folder `path` below `top`, sorted: names, and whether each is a folder itself (not a link to one).

    Raises as `read_inside` does, and `Unreadable` above `limit` names.
    """
    with _explained(), _opened(top) as folders:
        if _walk(folders, top, path) is not None:
            raise Unreadable("is a file, not a folder")
        with os.scandir(folders[-1]) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, limit + 1)]
    if len(found) > limit:
        raise Unreadable(f"holds more than {limit} files")
    return sorted(found)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(*error.args) from error
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise Unreadable(f"cannot be read: {error}") from error


@contextmanager
def _opened(top: str) -> Iterator[list[int]]:
    """Yield the open folders on the way down, the innermost last."""
    folders = [os.open(top, _FOLDER)]
    try:
        yield folders
    finally:
        for folder in folders:
            os.close(folder)


def _walk(folders: list[int], top: str, path: str) -> str | None:
    """Open the folders down to the one that contains `path`. Returns its name there; None if it is a folder, which is
    then the last one open."""
    todo, links = deque(path.split("/")), 0
    while todo:
        part = todo.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            _close_above(folders, len(folders) - 1, top)
            continue
        mode = os.stat(part, dir_fd=folders[-1], follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            links += 1
            if links > MAX_LINKS:
                raise Unreadable("is a link that leads to itself")
            todo.extendleft(reversed(_target(folders, top, part).split("/")))
        elif stat.S_ISDIR(mode):
            folders.append(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folders[-1]))
        elif any(todo):
            raise NotADirectoryError(part)
        else:
            _must_be_file(mode)
            return part
    return None


def _target(folders: list[int], top: str, link: str) -> str:
    """Read a link in the last folder. Returns its target, relative to the folder that is the last one afterwards."""
    target = os.readlink(link, dir_fd=folders[-1])
    if not target.startswith("/"):
        return target
    if os.path.commonpath((top, target)) != top:
        raise Unreadable(f"leads out of {top}")
    _close_above(folders, 1, top)
    return target[len(top) :]


def _close_above(folders: list[int], kept: int, top: str) -> None:
    if kept < 1:
        raise Unreadable(f"leads out of {top}")
    while len(folders) > kept:
        os.close(folders.pop())


def _must_be_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise Unreadable(f"is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")


def _read(descriptor: int, limit: int, *, cut: bool) -> bytes:
    """Read no more than the file's size says: a file of the kernel (`/proc/self/environ`) says 0 bytes."""
    data = bytearray()
    try:
        status = os.fstat(descriptor)
        _must_be_file(status.st_mode)
        most = min(limit + 1, status.st_size)
        while len(data) < most and (chunk := os.read(descriptor, min(_CHUNK, most - len(data)))):
            data += chunk
    finally:
        os.close(descriptor)
    if len(data) > limit and not cut:
        raise Unreadable(f"is larger than {limit >> 10} KiB")
    return bytes(data[:limit])
