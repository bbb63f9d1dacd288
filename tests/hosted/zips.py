"""Zips of skills, honest ones and others."""

import io
import zipfile
from collections.abc import Iterable

Entry = tuple[str | zipfile.ZipInfo, bytes]


def manifest(name: str = "adder", description: str = "Adds numbers.") -> bytes:
    """A `SKILL.md`."""
    return f"---\nname: {name}\ndescription: {description}\n---\nRun add.py.\n".encode()


def zipped(*entries: Entry, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip with these entries."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as target:
        for name, data in entries:
            target.writestr(name, data)
    return packed.getvalue()


def skill(*more: Entry, name: str = "adder") -> bytes:
    """The zip of a skill with more files."""
    return zipped(("SKILL.md", manifest(name)), *more)


def names_in(data: bytes) -> list[str]:
    """The names of a zip's entries."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        return source.namelist()


def special(name: str, mode: int) -> zipfile.ZipInfo:
    """An entry of another kind than a file, or with other rights."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    return entry


def files(count: int) -> Iterable[Entry]:
    """So many small files."""
    return ((f"f{number}", b"") for number in range(count))
