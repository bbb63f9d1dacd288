"""The images that were imported: `FERRULE_HOME/images`, a folder each (`shelf.py`).

NAME/rootfs       its files
     owners       whom they belong to, where the disk cannot say it (`owners.py`)
     image.json   what it is and how to run it; made last
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ferrule.containers.images.errors import ImageError, UnknownImage, explained
from ferrule.containers.images.limits import ImportLimits
from ferrule.containers.images.owners import write_owners
from ferrule.containers.images.shelf import Shelf
from ferrule.containers.images.source import ImageConfig, ImageSource, read_image
from ferrule.containers.images.unpack import unpack

ROOT, OWNERS, RECORD = "rootfs", "owners", "image.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names are folders, and parts of mount options."""
BAD_NAME = "{!r} is no name for an image: take letters, digits, `.`, `_` and `-`, at most 100, and begin with a letter"
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_ENDINGS = re.compile(r"\.(tar|tgz|gz|zst|oci)\b", re.IGNORECASE)


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of image.json.

    `size` in bytes. With `owned` the files belong on disk to those whom the image names; else all are ours.
    `left_out`: what was not unpacked, and how often.
    """

    config: ImageConfig
    reference: str
    digest: str
    size: int
    entries: int
    created_at: float
    owned: bool
    left_out: dict[str, int]


class Image(ImageRecord, frozen=True, kw_only=True):
    """An image that can be used. `root` is the folder with its files: mount it read-only. `owners` is the table of
    owners (`read_owners`)."""

    name: str
    root: Path
    owners: Path


class Images:
    """The images below one folder. Blocking."""

    def __init__(self, store: Path) -> None:
        """The folder need not exist."""
        self.store = store
        self._shelf = Shelf(store)

    def list(self) -> list[Image]:
        """Return all images, by name."""
        found = []
        for name in self._shelf.names():
            with suppress(UnknownImage):
                found.append(self.get(name))
        return found

    def get(self, name: str) -> Image:
        """Return an image. Raises `UnknownImage`."""
        folder = self.store / name
        unknown = UnknownImage(f"there is no image {name!r}: `ferrule runtime list` lists them, `import` makes one")
        if not NAME.fullmatch(name):
            raise unknown
        try:
            record = msgspec.json.decode((folder / RECORD).read_bytes(), type=ImageRecord)
        except (OSError, msgspec.DecodeError) as error:
            raise unknown from error
        told = {field: getattr(record, field) for field in record.__struct_fields__}
        return Image(name=name, root=folder / ROOT, owners=folder / OWNERS, **told)

    @contextmanager
    def using(self, name: str) -> Iterator[Image]:
        """Keep an image from being removed, by any process, until the block is left. Raises `UnknownImage`."""
        lock = self.hold(name)
        try:
            yield self.get(name)
        finally:
            os.close(lock)

    def hold(self, name: str) -> int:
        """Return a descriptor that keeps an image from being removed while any copy of it is open."""
        return self._shelf.hold(name, lambda: self.get(name))

    def import_(
        self,
        path: Path,
        name: str | None = None,
        *,
        reference: str | None = None,
        limits: ImportLimits | None = None,
        own: bool = False,
        replace: bool = False,
    ) -> Image:
        """Unpack an image and return it; one of this name and content that is there already is returned as it is.

        `name` defaults to the image's own, else to that of `path`. `reference` chooses one of several in `path`.
        `own` gives files to those whom the image names, which only root can; else all are ours, with a table.
        `replace`: another image of this name goes, at the latest when nobody uses it; without, that is an `ImageError`.
        Raises `ImageError`. Nothing of a failed import stays; what a killed one
        left, the next one removes.
        """
        if name is not None and not NAME.fullmatch(name):
            raise ImageError(BAD_NAME.format(name))
        limits = limits or ImportLimits()
        self.sweep()
        with (
            self._shelf.staging() as (staged, lock),
            read_image(path, reference, scratch=staged, limits=limits) as source,
        ):
            chosen = name or default_name(source.reference, path)
            there = self._same(chosen, source, replace=replace)
            if there is None:
                self._fill(staged, source, limits, own)
                with self._shelf.locked():  # another process may meanwhile have given it to one
                    if self._same(chosen, source, replace=replace) is None:
                        self._shelf.publish(staged, lock, chosen, replace=replace)
                there = self.get(chosen)
        return there

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a folder for what an image is made of. It is removed at the end; if we are killed, by the next sweep."""
        with self._shelf.staging() as (folder, _):
            yield folder

    def remove(self, name: str) -> None:
        """Remove an image. Raises `UnknownImage`, and `ImageError` while it is used."""
        self._shelf.remove(name, lambda: self.get(name))

    def sweep(self) -> None:
        """Remove what killed processes have left. Raises `ImageError` if it cannot be removed."""
        self._shelf.sweep()

    def _same(self, name: str, source: ImageSource, *, replace: bool) -> Image | None:
        """Return the image that has the name already. Raises `ImageError` for another one, unless that is replaced."""
        try:
            there = self.get(name)
        except UnknownImage:
            if (self.store / name).exists():
                raise ImageError(f"{self.store / name} is no image of ours: remove it, or choose a --name") from None
            return None
        if there.digest == source.digest:
            return there
        if replace:
            return None
        raise ImageError(f"there is another image {name}: `ferrule runtime rm {name}` first, or choose a --name")

    def _fill(self, staged: Path, source: ImageSource, limits: ImportLimits, own: bool) -> None:
        root = staged / ROOT
        with explained(root):
            root.mkdir(mode=0o755)
        made = unpack(source, root, limits, own=own)
        record = ImageRecord(
            config=source.config,
            reference=source.reference,
            digest=source.digest,
            size=made.size,
            entries=made.entries,
            created_at=time.time(),
            owned=made.owned,
            left_out=made.left_out,
        )
        with explained(staged):
            write_owners(staged / OWNERS, made.owners)
            (staged / RECORD).write_bytes(msgspec.json.encode(record))


def default_name(reference: str, path: Path) -> str:
    """Return the name of an image that was given none: `docker.io/library/python:3.11` is `python-3.11`."""
    given = reference.partition("@")[0].rpartition("/")[2].removesuffix(":latest")
    if not given or given == "latest":
        given = _ENDINGS.sub("", path.resolve().name)
    name = _ODD.sub("-", given).strip("-._")[:100]
    if not NAME.fullmatch(name):
        raise ImageError(f"{path} has no name that can be used: choose one with --name")
    return name
