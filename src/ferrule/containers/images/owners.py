"""Whom the files of an image belong to: what cannot be given to them on disk stands in a table beside the root.

The table is a file of records: USER GROUP MODE PATH, with a blank between and a NUL at the end; mode in octal digits,
path relative to the root. A file that is not listed belongs to 0:0 and has the mode that it has on disk.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

MOST = (1 << 32) - 2
"""The largest id: the one after it means "leave it as it is"."""


class Owner(msgspec.Struct, frozen=True):
    """User, group and permission bits of a file, as a layer has them."""

    user: int
    group: int
    mode: int


def write_owners(path: Path, owners: dict[tuple[bytes, ...], Owner]) -> None:
    """Write the table."""
    with path.open("xb") as file:
        for name, owner in sorted(owners.items()):
            file.write(b"%d %d %o %b\0" % (owner.user, owner.group, owner.mode, b"/".join(name)))


def read_owners(path: Path) -> Iterator[tuple[str, Owner]]:
    """Yield each path, with the owner and mode that its layer gave it. Raises `OSError`, `ValueError`."""
    for record in path.read_bytes().split(b"\0")[:-1]:
        user, group, mode, name = record.split(b" ", 3)
        yield os.fsdecode(name), Owner(int(user), int(group), int(mode, 8))
