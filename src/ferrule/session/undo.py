"""Undo in a session: its log, its snapshots, and the way back through what may be written now."""

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from ferrule.dispatch.unfinished import put_right
from ferrule.dispatch.workspace import Workspace
from ferrule.history.compaction import TAKEN_BACK, user_message
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import LeftAlone, UndoCompleted
from ferrule.protocol.json_text import encodable
from ferrule.protocol.settings import Settings
from ferrule.sandbox.placeholders import WRITABLE
from ferrule.sandbox.plan import RESERVED_NAMES
from ferrule.session.caches import with_caches
from ferrule.session.rollout import Rollout, StoredSession
from ferrule.sync import uninterrupted
from ferrule.tools.tasks import run_blocking
from ferrule.undo.states import MISSING, Change
from ferrule.undo.undo_log import StoredTurn, UndoLog

if TYPE_CHECKING:
    from ferrule.undo.snapshots import Snapshots

T = TypeVar("T")

TOLD_PATHS = 100
"""Paths that the model is told of; it looks at the others when it needs them."""
NOTHING = "there is nothing to take back: no turn of this session has changed files, or all were taken back"


class Undoing:
    """What a session needs to take its turns back. `report` shows a sentence to the user."""

    def __init__(
        self,
        log: UndoLog,
        workspace: Workspace,
        snapshots: "Snapshots | None",
        report: Callable[[str], None],
        *,
        is_kept: bool,
    ) -> None:
        self._log = log
        self._workspace = workspace
        self._snapshots = snapshots
        self._report = report
        self._is_kept = is_kept

    @classmethod
    def of(cls, settings: Settings, log: UndoLog, workspace: Workspace, report: Callable[[str], None]) -> "Undoing":
        """Make it from a session's settings."""
        snapshots = _snapshots_of(settings) if settings.snapshots else None
        return cls(log, workspace, snapshots, report, is_kept=not settings.ephemeral)

    async def begin(self, turn_id: str) -> None:
        """Begin a turn, with a snapshot where the user wants them. If that fails, the turn begins without."""
        self._log.begin(turn_id)
        if self._snapshots is not None:
            await self._bounded(self._snapshots.take)

    async def end(self) -> None:
        """End a turn, however it went: note what its commands have changed."""
        if self._snapshots is not None:
            await self._bounded(self._compare)

    def close(self) -> None:
        """End the session. One that keeps nothing on disk keeps nothing here."""
        if self._snapshots is not None:
            self._snapshots.close()
        if not self._is_kept:
            self._log.remove()

    async def undo(self, heed: Callable[[UndoCompleted], None]) -> UndoCompleted:
        """Take the last turn back, to its end even if this is cancelled. `heed` gets what was done. Raises
        `UsageError` where there is none."""
        turn = self._log.last()
        if turn is None:
            raise UsageError(NOTHING)
        await self._workspace.look()
        done: list[UndoCompleted] = []

        async def whole() -> None:
            done.append(await run_blocking(self._take_back, turn))
            heed(done[0])

        await uninterrupted(whole())
        return done[0]

    def _take_back(self, turn: StoredTurn) -> UndoCompleted:
        from ferrule.undo.restore import take_back

        workspace = self._workspace
        outcome = take_back(turn.changes, workspace.writable_files, turn.contents.get, workspace.journal)
        partly = [LeftAlone(path, turn.notes[path]) for path in outcome.restored if path in turn.notes]
        left = (LeftAlone(encodable(one.path), one.reason) for one in (*partly, *outcome.left))
        if not outcome.failed and (outcome.restored or not outcome.left):
            self._log.forget(turn)
        return UndoCompleted(
            turn_id=turn.id,
            restored=tuple(encodable(path) for path in outcome.restored if path not in turn.notes),
            left=tuple(left),
            with_commands=turn.with_commands,
        )

    def _compare(self, stop: Event) -> None:
        assert self._snapshots is not None
        found = [change for change in self._snapshots.compare(stop) if not _of_the_sandbox(change)]
        self._log.compared(found, self._snapshots.content, self._snapshots.covers)

    async def _bounded(self, work: Callable[[Event], None]) -> None:
        """Do a snapshot's work on a thread, and say why where it cannot be done. It ends soon when it is cancelled."""
        from ferrule.undo.snapshots import TooMuch

        stop = Event()
        running = asyncio.ensure_future(run_blocking(work, stop))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            await uninterrupted(_settled(running))
            raise
        except TooMuch as reason:
            self._report(
                f"undo will not cover what commands change in this turn: the workspace is too large for a snapshot, "
                f"{reason}. Raise that limit, or leave folders out by .gitignore"
            )
        except OSError as error:
            self._report(
                f"undo will not cover what commands change in this turn: no snapshot can be kept ({error.strerror})"
            )


def _of_the_sandbox(change: Change) -> bool:
    """Return whether a reserved name came or went: an empty folder is there while commands run, and a little longer.
    Commands themselves cannot make one."""
    return os.path.basename(os.fsdecode(change.path)) in RESERVED_NAMES and all(
        state == MISSING or (state.kind == "folder" and not state.mode & WRITABLE)
        for state in (change.before, change.after)
    )


def _snapshots_of(settings: Settings) -> "Snapshots":
    from ferrule.undo.snapshots import Bounds, Snapshots

    bounds = Bounds(settings.snapshot_max_bytes, settings.snapshot_max_files, settings.snapshot_timeout)
    return Snapshots(settings.home, settings.cwd, bounds)


async def _settled(task: "asyncio.Future[None]") -> None:
    await asyncio.wait([task])
    task.exception()


def undo_message(done: UndoCompleted) -> str:
    """Return what the model is told."""
    lines = [
        TAKEN_BACK[0],
        "The user has taken back changes of your last turn. These files are as they were before it:",
    ]
    lines += _listed([f"- {path}" for path in done.restored])
    if done.left:
        lines.append("These were left alone, or taken back in part only:")
        lines += _listed([f"- {one.path}: {one.reason}" for one in done.left])
    if not done.with_commands:
        lines.append("What commands changed was not taken back.")
    return "\n".join([*lines, "Read a file again before you change it.", TAKEN_BACK[1]])


def _listed(lines: list[str]) -> list[str]:
    more = len(lines) - TOLD_PATHS
    return [*lines[:TOLD_PATHS], f"- and {more} more"] if more > 0 else lines


def _ignore(text: str) -> None:
    """Nothing is reported where nothing is logged."""


async def undo_stored(
    settings: Settings, stored: StoredSession, report: Callable[[str], None] = _ignore
) -> UndoCompleted:
    """Take back the last turn of a session that no process runs; the model reads of it when the session goes on.
    `report` is told what a killed process had left half done, and if the model cannot be told.

    Raises `UsageError` where there is nothing to take back, or another program has the session open.
    """
    for told in put_right(settings.home):
        report(told)
    policy, _ = with_caches(settings)
    workspace = Workspace(policy, settings.cwd, settings.home)
    undoing = Undoing(UndoLog(settings.home, stored.meta.id, _ignore), workspace, None, _ignore, is_kept=True)

    def heed(done: UndoCompleted) -> None:
        if done.restored:
            try:
                rollout.item(user_message(undo_message(done)))
            except OSError as error:
                report(f"the model will not read of it: {stored.path} cannot be written ({error.strerror})")

    with closing(Rollout.go_on(stored)) as rollout:
        try:
            return await undoing.undo(heed)
        finally:
            await workspace.close()
