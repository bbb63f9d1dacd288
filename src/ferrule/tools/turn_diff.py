"""The combined changes of a turn's patches."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ferrule.undo.undo_log import NOTHING_OPENED, UndoLog

if TYPE_CHECKING:
    from ferrule.patch.turn_diff import Change


class TurnDiffTracker:
    """The session's only tracker. Changes of an earlier turn are forgotten when a new one writes. `undo_log` keeps what
    undo needs."""

    __slots__ = ("_changes", "_root", "_turn_id", "_undo_log")

    def __init__(self, root: str, undo_log: UndoLog | None = None) -> None:
        self._root = root
        self._undo_log = undo_log
        self._turn_id = ""
        self._changes: list[Change] = []

    def writing(
        self, paths: Sequence[str], opened: Mapping[str, bytes] = NOTHING_OPENED
    ) -> AbstractContextManager[None]:
        """Return a context in which these real paths are written; `opened` is what an editor holds there."""
        return nullcontext() if self._undo_log is None else self._undo_log.writing(paths, opened)

    def record(self, turn_id: str, changes: "Iterable[Change]") -> str:
        """Record written changes; return the turn's net unified diff, empty if everything cancels out."""
        if turn_id != self._turn_id:
            self._turn_id, self._changes = turn_id, []
        self._changes.extend(changes)
        return self.diff_of(turn_id)

    def diff_of(self, turn_id: str) -> str:
        """Return the turn's net unified diff, empty if it wrote nothing."""
        if turn_id != self._turn_id or not self._changes:
            return ""
        from ferrule.patch.turn_diff import turn_diff

        return turn_diff(self._changes, self._root)
