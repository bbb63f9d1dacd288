"""The files of a skill as a client sends them: read from a zip or one by one, checked, and written to disk.

A bundle is hostile until it was read here. What it may hold is a list of good things: regular files with plain names.
"""

import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ferrule.protocol.errors import FerruleError
from ferrule.skills import SKILL_FILE, BadSkill, SkillFile, read_skill

MOST_FILES = 50
MOST_BYTES = 25 << 20
"""Limits of a skill, unpacked: many times what one has."""
MOST_ENTRIES = 1000
"""Entries of a zip: folders count, and what macOS adds."""
DIRECTORY_BYTES = 1 << 20
"""Bytes of a zip's directory: each entry takes 46 and its names."""
DEEPEST = 16
"""Folders in one another."""
LONGEST_PART, LONGEST_PATH = 255, 1024
"""Bytes of a name and of a path: more cannot be a file's name, or is no honest one."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A skill's name, which is also that of its folder. The standard has lower case letters, digits and hyphens alone."""
NAMES = "it has letters, digits, '-', '_' and '.' alone, begins with a letter or a digit, and has at most 64 characters"
_BLOCK = 64 << 10
_LONGEST_REASON, _LONGEST_QUOTE = 200, 100
"""Characters of a reason that `zipfile` gives, some of which quote the file, and of a name."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_OF_MACOS = ("__MACOSX", ".DS_Store")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BadBundle(FerruleError):
    """A bundle that is no skill: one sentence for the client."""


class BundleFile(msgspec.Struct, frozen=True):
    """A file of a skill. `path` is relative to the skill's folder."""

    path: str
    data: bytes
    executable: bool = False


class Bundle(msgspec.Struct, frozen=True):
    """A skill that was read."""

    name: str
    description: str
    files: tuple[BundleFile, ...]


def read_bundle(data: bytes, name: str | None = None, description: str | None = None) -> Bundle:
    """Read a zip. `name` and `description` count instead of those in its `SKILL.md`. Raises `BadBundle`. Blocking."""
    return bundle_of(_unpacked(data), name, description)


def bundle_of(files: Iterable[BundleFile], name: str | None = None, description: str | None = None) -> Bundle:
    """Check files that a client names. Raises `BadBundle`."""
    found = _within_top(_checked(files))
    manifest = next((file for file in found if file.path == SKILL_FILE), None)
    if manifest is None:
        raise BadBundle(f"there is no {SKILL_FILE} at the top")
    if name is None or description is None:
        skill = read_skill(SkillFile(SKILL_FILE, manifest.data), "user")
        if isinstance(skill, BadSkill):
            raise BadBundle(f"{SKILL_FILE} {skill.text}")
        name, description = skill.name, skill.description
    if not NAME.fullmatch(name):
        raise BadBundle(f"{_quoted(name)} cannot be a skill's name: {NAMES}")
    return Bundle(name, description, found)


def zip_of(files: Sequence[BundleFile]) -> bytes:
    """Pack files, as they were named."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for file in files:
            info = zipfile.ZipInfo(file.path)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | (0o755 if file.executable else 0o644)) << 16
            target.writestr(info, file.data)
    return packed.getvalue()


def write_files(folder: Path, files: Iterable[BundleFile]) -> None:
    """Write files into a new folder. What begins with `#!` can be run: a form says nothing of modes. Blocking."""
    folder.mkdir()
    folder.chmod(0o755)
    for file in files:
        path = folder / file.path
        for parent in reversed(path.relative_to(folder).parents[:-1]):
            (folder / parent).mkdir(exist_ok=True)
            (folder / parent).chmod(0o755)
        with os.fdopen(os.open(path, _NEW, 0o644), "wb") as target:
            target.write(file.data)
            os.fchmod(target.fileno(), 0o755 if file.executable or file.data.startswith(b"#!") else 0o644)


class _Bounded(io.BytesIO):
    """A zip whose directory is read only if it is small: `zipfile` reads it at once, whatever its size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory has {size:,} bytes")
        return super().read(size)


def _unpacked(data: bytes) -> Iterator[BundleFile]:
    """Yield the files of a zip. Raises `BadBundle`."""
    try:
        with zipfile.ZipFile(_Bounded(data)) as source:
            entries = [entry for entry in source.infolist() if not _is_of_macos(entry.filename)]
            if len(entries) > MOST_ENTRIES:
                raise BadBundle(f"the zip has {len(entries)} entries; at most {MOST_FILES} files are allowed")
            left = MOST_BYTES
            for entry in entries:
                _check_entry(entry)
                if not entry.is_dir():
                    content = _content(source, entry, left)
                    left -= len(content)
                    yield BundleFile(entry.filename, content, bool(entry.external_attr >> 16 & 0o111))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OverflowError) as error:
        raise BadBundle(f"the zip cannot be read: {str(error)[:_LONGEST_REASON]}") from error


def _is_of_macos(name: str) -> bool:
    """Return whether this is what macOS adds to each zip."""
    parts = name.split("/")
    return parts[0] == _OF_MACOS[0] or parts[-1] == _OF_MACOS[1]


def _check_entry(entry: zipfile.ZipInfo) -> None:
    if not entry.filename:  # of which `zipfile` cannot say what it is
        raise BadBundle("the zip has a file without a name")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if entry.is_dir() else stat.S_IFREG):
        raise BadBundle(f"{_quoted(entry.filename)} is a link or a special file: a skill has files and folders alone")
    if entry.filename != entry.orig_filename:  # it holds a NUL, or has a second name in an extra field
        raise BadBundle(f"{_quoted(entry.orig_filename)} cannot be a file's name")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
        raise BadBundle(f"{_quoted(entry.filename)} is encrypted or packed in a way other than 'deflate'")
    if entry.is_dir():
        _check_path(entry.filename.removesuffix("/"))


def _content(source: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """Unpack a file, but never more than may be: the size that a zip names is its maker's word."""
    content = bytearray()
    with source.open(entry) as packed:
        while block := packed.read(_BLOCK):
            content += block
            if len(content) > most:
                raise _too_large()
    return bytes(content)


def _quoted(name: str) -> str:
    """Return a name as errors show it: a zip has some of 65,535 characters."""
    return repr(name if len(name) <= _LONGEST_QUOTE else f"{name[:_LONGEST_QUOTE]}...")


def _too_large() -> BadBundle:
    return BadBundle(f"the files have more than {MOST_BYTES >> 20} MB, the limit of a skill")


def _checked(files: Iterable[BundleFile]) -> list[BundleFile]:
    """Return the files if they can lie beside each other, and are not too many. Raises `BadBundle`."""
    found: dict[str, BundleFile] = {}
    size = 0
    for file in files:
        _check_path(file.path)
        if file.path in found:
            raise BadBundle(f"there are two files {_quoted(file.path)}")
        found[file.path] = file
        size += len(file.data)
        if len(found) > MOST_FILES:
            raise BadBundle(f"there are more than {MOST_FILES} files, the limit of a skill")
        if size > MOST_BYTES:
            raise _too_large()
    for path in found:
        parts = path.split("/")
        if above := next((name for at in range(1, len(parts)) if (name := "/".join(parts[:at])) in found), None):
            raise BadBundle(f"{_quoted(above)} is a file and a folder")
    return [*found.values()]


def _check_path(path: str) -> None:
    """Raises `BadBundle` for a path that is not plain and relative."""
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts or "\\" in path:
        raise BadBundle(f"{_quoted(path)} is no path within a skill: it must be relative, without '.', '..' and '\\\\'")
    sizes = [len(part.encode(errors="surrogatepass")) for part in parts]
    if not path.isprintable() or max(sizes) > LONGEST_PART or sum(sizes) > LONGEST_PATH or len(parts) > DEEPEST:
        raise BadBundle(f"{_quoted(path)} cannot be a file's name here: it is too long, too deep, or not text")


def _within_top(files: list[BundleFile]) -> tuple[BundleFile, ...]:
    """Return the files without the one folder that all of them lie in, as most zips have it."""
    tops = {file.path.partition("/")[0] for file in files}
    if len(tops) != 1 or any("/" not in file.path for file in files):
        return tuple(files)
    skip = len(tops.pop()) + 1
    return tuple(msgspec.structs.replace(file, path=file.path[skip:]) for file in files)
