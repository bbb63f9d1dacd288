"""A small root file system made of this machine's programs, and an image of it."""

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from ferrule.containers.images import Images
from tests.containers.layouts import layout


def copy(source: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(os.path.realpath(source), target)


def small_root(root: Path, programs: Iterable[str]) -> None:
    """Programs, with the libraries that they load."""
    for name in programs:
        program = shutil.which(name)
        assert program is not None
        copy(program, root / "bin" / name)
        loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+)", loaded):
            copy(library, root / library[1:])


def packed(root: Path) -> bytes:
    """The tar archive of a root."""
    archive_of = io.BytesIO()
    with tarfile.open(fileobj=archive_of, mode="w") as archive:
        archive.add(root, arcname=".")
    return archive_of.getvalue()


def import_root(home: Path, root: Path, name: str, run: dict[str, object]) -> None:
    """Make an image of a root, and import it; `home` is Ferrule's own folder."""
    made = layout(root.parent / f"{name}-layout", packed(root), run=run)
    Images(home / "images").import_(made, name)
    shutil.rmtree(made)
