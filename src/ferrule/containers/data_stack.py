"""The Python data stack: packages that containers on the machine's own programs see, beside the images in their folder.

data-stack/packages    the packages, mounted read-only where the machine's Python looks for them
           stack.json  what they are and whom they are for; made last
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.containers.images.errors import UnknownImage
from ferrule.containers.images.folders import OPEN
from ferrule.containers.images.shelf import Shelf
from ferrule.locks import try_share
from ferrule.sandbox.linux.root import Bind

NAME, PACKAGES, RECORD = "data-stack", "packages", "stack.json"
NONE = "there is no data stack: `ferrule runtime build` makes one"


class StackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of stack.json. `python` is the version of the interpreter, `target` its folder for packages, `size`
    in bytes."""

    python: str
    target: str
    versions: dict[str, str]
    size: int
    created_at: float

    def line(self) -> str:
        """Describe it in a line."""
        packages = " ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"for Python {self.python}, {self.size / 1e6:,.1f} MB: {packages}"

    @property
    def fits(self) -> bool:
        """False once the machine's Python is another one, so that nothing looks for it there."""
        return os.path.isdir(self.target)


class DataStack:
    """The data stack below the folder of images. Blocking."""

    def __init__(self, store: Path) -> None:
        self.shelf = Shelf(store)
        self.folder = store / NAME

    def get(self) -> StackRecord:
        """Return what it is. Raises `UnknownImage`."""
        try:
            return msgspec.json.decode((self.folder / RECORD).read_bytes(), type=StackRecord)
        except (OSError, msgspec.DecodeError) as error:
            raise UnknownImage(NONE) from error

    def use(self) -> tuple[Bind, int] | None:
        """Return how to mount it, and a descriptor that keeps it; None if there is none that fits."""
        lock = -1
        with suppress(UnknownImage, OSError):
            record = self.get()
            lock = os.open(self.folder, OPEN)
            # By the number of its folder: it may be replaced at any moment.
            if record.fits and try_share(lock) and os.path.samestat(os.fstat(lock), os.stat(self.folder)):
                return Bind(os.path.realpath(self.folder / PACKAGES), record.target), lock
        if lock >= 0:
            os.close(lock)
        return None

    def remove(self) -> None:
        """Remove it. Raises `UnknownImage`, and `ImageError` while containers use it."""
        self.shelf.remove(NAME, self.get)
