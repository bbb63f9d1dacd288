"""The files of a container as its host sees them. Commands write there: nothing is followed, and nothing but regular
files is opened, since a link or a FIFO is a trap for whoever reads it from outside."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

MOST_FILES = 10_000
"""Files that are listed: a build may leave hundreds of thousands, which nobody pages through."""
DEEPEST = 64
"""Folders in one another that are looked into."""
LONGEST_NAME = 255
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DataFile(msgspec.Struct, frozen=True):
    """A regular file. `path` is relative to the folder; `bytes` is its size; `changed_at` is in seconds since 1970."""

    path: str
    bytes: int
    changed_at: float

    @property
    def shown(self) -> str:
        """Its path as text: names need not be UTF-8."""
        return os.fsencode(self.path).decode(errors="replace")


class NoFile(Exception):
    """There is no regular file of this path, or it cannot be made."""


class FolderClosed(Exception):
    """Nobody can look into the folder: commands have closed it, and it is not ours to open."""


def list_files(folder: Path) -> list[DataFile]:
    """Return the regular files, by path. Blocking. Raises `FolderClosed`."""
    top = _top(folder)
    found: list[DataFile] = []
    for entry in _walk(top, "", 0):
        found.append(entry)
        if len(found) == MOST_FILES:
            break
    return sorted(found, key=lambda entry: entry.path)


def _walk(at: int, above: str, depth: int) -> Iterator[DataFile]:
    """Yield what is below an open folder, and close it."""
    try:
        with os.scandir(at) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            try:
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield DataFile(above + name, found.st_size, found.st_mtime)
                elif stat.S_ISDIR(found.st_mode) and depth < DEEPEST:
                    yield from _walk(os.open(name, _FOLDER, dir_fd=at), f"{above}{name}/", depth + 1)
            except OSError:
                continue  # it went meanwhile, or is closed to us
    finally:
        os.close(at)


def find_file(folder: Path, path: str) -> DataFile:
    """Return a regular file by its path. Raises `NoFile` and `FolderClosed`."""
    parent, name = _parent(folder, path)
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        raise NoFile(path) from error
    finally:
        os.close(parent)
    if not stat.S_ISREG(found.st_mode):
        raise NoFile(path)
    return DataFile(path, found.st_size, found.st_mtime)


def open_file(folder: Path, path: str) -> int:
    """Open a regular file for reading. Raises `NoFile`."""
    parent, name = _parent(folder, path)
    try:
        return _regular(os.open(name, os.O_RDONLY | _FILE, dir_fd=parent))
    except OSError as error:
        raise NoFile(path) from error
    finally:
        os.close(parent)


def make_file(folder: Path, name: str) -> tuple[str, int]:
    """Make a file of this name, or of one like it if there is one. Returns its name and a descriptor to write it.
    Raises `NoFile` for a name that cannot be, and `FolderClosed`."""
    name = name_on_disk(name)
    top = _top(folder)
    try:
        stem, dot, suffix = name.partition(".") if not name.startswith(".") else (name, "", "")
        for number in range(1, MOST_FILES):
            free = name if number == 1 else f"{stem}_{number}{dot}{suffix}"
            try:
                return free, os.open(free, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o644, dir_fd=top)
            except FileExistsError:
                continue
        raise NoFile(name)
    finally:
        os.close(top)


def remove_file(folder: Path, path: str) -> None:
    """Remove a regular file. Raises `NoFile`."""
    parent, name = _parent(folder, path)
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise NoFile(path)
        os.unlink(name, dir_fd=parent)
    except OSError as error:
        raise NoFile(path) from error
    finally:
        os.close(parent)


def name_on_disk(name: str) -> str:
    """Return the last part of a name as one that a folder can have. Raises `NoFile` if nothing is left."""
    plain = name.replace("\\", "/").rpartition("/")[2].replace("\0", "").strip()
    encoded = plain.encode(errors="replace")[: LONGEST_NAME - 8]
    plain = encoded.decode(errors="ignore")
    if plain in ("", ".", ".."):
        raise NoFile(name)
    return plain


def _top(folder: Path) -> int:
    """Open the folder itself, also one that commands have closed, as its owner may."""
    try:
        mode = os.stat(folder, follow_symlinks=False).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)
        return os.open(folder, _FOLDER)
    except PermissionError as error:
        raise FolderClosed(str(folder)) from error


def _parent(folder: Path, path: str) -> tuple[int, str]:
    """Open the folder of a path, link by link, without following any."""
    *folders, name = path.split("/")
    if not name or any(part in ("", ".", "..") for part in (*folders, name)) or len(folders) > DEEPEST:
        raise NoFile(path)
    at = _top(folder)
    for part in folders:
        try:
            inner = os.open(part, _FOLDER, dir_fd=at)
        except OSError as error:
            raise NoFile(path) from error
        finally:
            os.close(at)
        at = inner
    return at, name


def _regular(fd: int) -> int:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise NoFile
