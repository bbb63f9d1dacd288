"""The containers that homes of tests leave behind: they lie below `/var/tmp`, where pytest removes nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

DEPTH = 4
"""How deep below a test's own folder its home may be."""


def remove_containers(base: Path) -> None:
    """Remove the containers of all homes below a folder that no process has any more."""
    from ferrule.containers import place

    shared = place.default_place(str(base)).parent
    there = {path.name: path for path in shared.iterdir()} if shared.is_dir() else {}
    for folder in _folders(Path(os.path.realpath(base)), DEPTH) if there else ():
        found = there.get(place.default_place(str(folder)).name)
        if found is not None:
            for info in place.on_disk(found):
                os.utime(found / info.id / place.RECORD, (0, 0))
            place.sweep(found)


def _folders(top: Path, depth: int) -> Iterator[Path]:
    yield top
    try:
        inner = [Path(entry) for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)] if depth else []
    except OSError:  # closed to us, or gone
        return
    for folder in inner:
        yield from _folders(folder, depth - 1)
