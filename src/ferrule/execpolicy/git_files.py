"""Read what git would read before a command: git is not started to find out what it would start.

Anything unusual raises `Unreadable`, and git does not count as safe then. Sources: git-config(1),
gitrepository-layout(5), gitformat-index(5).
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ferrule.git.config import ConfigError, parse_config

MAX_CONFIG_BYTES = 1024 * 1024  # a configuration has a few kilobytes
MAX_INDEX_BYTES = 64 * 1024 * 1024  # some 600,000 files; reading more would hold the command up for seconds
MAX_INCLUDES = 100
_FILE_MODES = frozenset([0o100644, 0o100755, 0o120000])
_ENTRY, _MODE = 40, 24  # bytes of an index entry before its hash, and where among them the mode stands


class Unreadable(Exception):
    """Something is not as git's own pages describe it, or not as most repositories are."""


class Repository:
    """The repository around a folder. `git_dir` is its own part; `common` is shared with other worktrees."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir
        pointer = git_dir / "commondir"
        self.common = _joined(git_dir, _first_line(pointer)) if os.path.lexists(pointer) else git_dir


def find_repository(cwd: str) -> Repository | None:
    """Find the repository upwards, as git does. Raises `Unreadable` for a bare one or a broken `.git`."""
    here = Path(os.path.realpath(cwd))
    for folder in (here, *here.parents):
        dot_git = folder / ".git"
        if os.path.lexists(dot_git):
            return _opened(dot_git)
        if _is_git_dir(folder):
            raise Unreadable("a bare repository")
    return None


def _opened(dot_git: Path) -> Repository:
    if dot_git.is_file():
        label, _, target = _first_line(dot_git).partition(": ")
        if label != "gitdir":
            raise Unreadable("a .git file that is no pointer")
        dot_git = _joined(dot_git.parent, target)
    found = Repository(dot_git)
    if not (os.path.lexists(dot_git / "HEAD") and _is_store(found.common)):
        raise Unreadable("a .git that git would pass over")
    return found


def _is_git_dir(folder: Path) -> bool:
    return os.path.lexists(folder / "HEAD") and _is_store(folder)


def _is_store(folder: Path) -> bool:
    return (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _first_line(path: Path) -> str:
    return _read(path, MAX_CONFIG_BYTES).decode(errors="surrogateescape").rstrip("\r\n")


def _joined(folder: Path, target: str) -> Path:
    if not target or "\n" in target:
        raise Unreadable("a pointer without a target")
    return Path(os.path.join(folder, target))


def _read(path: Path, most: int) -> bytes:
    if not path.is_file():
        raise Unreadable(f"{path} is no regular file")
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read") from error
    if len(content) > most:
        raise Unreadable(f"{path} is too large")
    return content


def configuration(git: str, repository: Repository | None, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield every (key, value) that the program `git` (its real path) could read, as if every include applied."""
    prefix = Path(git).parent.parent
    files = [Path("/etc/gitconfig"), prefix / "etc/gitconfig", prefix / "share/git-core/gitconfig"]
    home = env.get("HOME")
    if home:
        files.append(Path(home, ".gitconfig"))
    shared = env.get("XDG_CONFIG_HOME") or (home and os.path.join(home, ".config"))
    if shared:
        files.append(Path(shared, "git/config"))
    if repository is not None:
        files += [repository.common / "config", repository.git_dir / "config.worktree"]
    read = 0
    while files:
        file = files.pop()
        if not os.path.exists(file):
            continue
        read += 1
        if read > MAX_INCLUDES:
            raise Unreadable("too many included files")
        for key, value in entries(_read(file, MAX_CONFIG_BYTES)):
            yield key, value
            if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
                files.append(_included(file, value, home))


def _included(file: Path, value: str, home: str | None) -> Path:
    if value.startswith("~/") and home:
        return Path(home, value[2:])
    if not value or value.startswith(("~", "%")):
        raise Unreadable(f"an include of {value!r}")
    return Path(os.path.join(os.path.realpath(file.parent), value))


def entries(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield one file's pairs. Section and last part of a key are in lower case; a key without a value is `true`."""
    try:
        for entry in parse_config(content.decode(errors="surrogateescape")):
            if not entry.section:
                raise Unreadable("a setting before the first section")
            yield entry.key, entry.value
    except ConfigError as error:
        raise Unreadable(str(error)) from error


def holds_only_files(repository: Repository, hash_bytes: int = 20) -> bool:
    """Return True if the index names only files and links: no nested repository, nothing to be fetched."""
    path = repository.git_dir / "index"
    if not os.path.lexists(path):
        return True
    data = _read(path, MAX_INDEX_BYTES)
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise Unreadable("an index of another format")
    at = 12
    for _ in range(count):
        mode = int.from_bytes(data[at + _MODE : at + _MODE + 4], "big")
        if mode not in _FILE_MODES:
            return False
        at = _next_entry(data, at, version, hash_bytes)
    return data[at : at + 4] != b"link"  # a split index: the rest stands in another file


def _next_entry(data: bytes, start: int, version: int, hash_bytes: int) -> int:
    at = start + _ENTRY + hash_bytes
    extended = bool(data[at] & 0x40) if at < len(data) else False
    at += 4 if extended else 2
    if version == 4:
        while at < len(data) and data[at] & 0x80:
            at += 1
        at += 1
    end = data.find(b"\0", at)
    if end < 0:
        raise Unreadable("an index that was cut")
    return end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
