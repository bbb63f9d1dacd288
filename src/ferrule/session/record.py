"""Write a session's record as it happens. A session goes on if its file fails; the user is told once."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ferrule.model.lessons import Lesson
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.settings import Settings
from ferrule.session.lines import ImagesRefused, SessionMeta, TurnContext
from ferrule.session.rollout import Rollout

Report = Callable[[str], None]


class Parentage(msgspec.Struct, frozen=True):
    """Where a session comes from: the session that started it as a sub-agent and the role it was given, the session
    that it is a copy of, and the conversation that it goes on from."""

    parent: str | None = None
    role: str | None = None
    forked_from: str | None = None
    history: tuple[ResponseItem, ...] = ()


class SessionRecord:
    """Writes to `rollout`, or nowhere without one. `report` is told when the file cannot be written."""

    __slots__ = ("_report", "_rollout", "_told", "is_whole")

    def __init__(self, rollout: Rollout | None, report: Report) -> None:
        self._rollout = rollout
        self._report = report
        self._told = False
        self.is_whole = True
        """Whether the conversation can be read again from the file, if there is one."""

    @property
    def path(self) -> Path | None:
        """The file; None if nothing is stored."""
        return None if self._rollout is None else self._rollout.path

    def begin(self, session_id: str, cwd: str, settings: Settings, came_from: Parentage) -> None:
        """Write the head of a new session."""
        meta = SessionMeta(
            id=session_id,
            timestamp=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            cwd=cwd,
            model_provider=settings.provider_name,
            instructions=settings.instructions,
            parent_thread_id=came_from.parent,
            agent_role=came_from.role,
            forked_from_id=came_from.forked_from,
        )
        self._write(lambda rollout: rollout.meta(meta))

    def turn(self, context: TurnContext) -> None:
        """Write what a turn runs with."""
        self._write(lambda rollout: rollout.turn_context(context))

    def item(self, item: ResponseItem) -> None:
        """Write an item, byte for byte."""
        self._write(lambda rollout: rollout.item(item))

    def compacted(self, items: Sequence[ResponseItem], summary: str) -> None:
        """Write the history that replaces all before."""
        if self._write(lambda rollout: rollout.compacted(items, summary)):
            self.is_whole = True

    def end_response(self, usage: TokenUsage | None) -> None:
        """Write that a response of the model is complete, with its calls."""
        self._write(lambda rollout: rollout.response_end(usage))

    def lesson(self, lesson: Lesson) -> None:
        """Write what a server refuses."""
        self._write(lambda rollout: rollout.lesson(lesson))

    def images_refused(self, refused: ImagesRefused) -> None:
        """Write whose images were refused."""
        self._write(lambda rollout: rollout.images_refused(refused))

    def note(self, name: str, message: str = "") -> None:
        """Write how a turn ended before its time (turn_aborted, error)."""
        self._write(lambda rollout: rollout.event(name, message))

    def close(self) -> None:
        """Close the file."""
        if self._rollout is not None:
            self._rollout.close()

    def _write(self, write: Callable[[Rollout], None]) -> bool:
        if self._rollout is None:
            return True
        try:
            write(self._rollout)
        except OSError as error:
            self.is_whole = False
            if not self._told:
                self._told = True
                self._report(f"the session cannot be saved in {self._rollout.path}: {error.strerror}")
            return False
        return True
