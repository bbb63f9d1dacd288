"""A turn that can be undone, in a workspace of real files."""

import random
from pathlib import Path
from threading import Event

from ferrule.patch import apply_patch
from ferrule.patch.files import PlainFiles
from ferrule.undo.snapshots import Bounds, Snapshots
from ferrule.undo.undo_log import UndoLog
from tests.patch.tree import patch
from tests.undo.trees import some

BOUNDS = Bounds(bytes=100_000_000, files=1000, seconds=60)


class Turn:
    """A workspace with an undo log and snapshots; `report` has what the user was told."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.home = folder / "home"
        self.report: list[str] = []
        self.undo_log = self.reopened()
        self.snapshots = Snapshots(str(self.home), str(self.root), BOUNDS)
        self.number = 0

    def reopened(self) -> UndoLog:
        return UndoLog(str(self.home), "a-session", self.report.append)

    def begin(self, *, snapshot: bool = False) -> None:
        self.number += 1
        self.undo_log.begin(str(self.number))
        if snapshot:
            self.snapshots.take(Event())

    def end(self) -> None:
        self.undo_log.compared(self.snapshots.compare(Event()), self.snapshots.content, self.snapshots.covers)

    def patch(self, *lines: str) -> None:
        names = [line.rpartition(": ")[2] for line in lines if line.startswith("*** ")]
        with self.undo_log.writing([str(self.root / name) for name in names]):
            apply_patch(patch(*lines), str(self.root))

    def edit(self, rnd: random.Random) -> None:
        """One edit as a tool makes it."""
        path = some(self.root, rnd)
        if path is None or rnd.random() < 0.3:
            path = self.root / f"made{rnd.randrange(3)}" / f"deep{rnd.randrange(3)}" / "m.txt"
        name = str(path.relative_to(self.root))
        if not path.exists():
            self.patch(f"*** Add File: {name}", "+made")
        elif rnd.random() < 0.3:
            self.patch(f"*** Delete File: {name}")
        else:
            with self.undo_log.writing([str(path)]):
                mode = path.stat().st_mode & 0o777
                path.unlink()
                PlainFiles().create(str(path), rnd.randbytes(20), mode)
