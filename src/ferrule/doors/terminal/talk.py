"""The session behind the screen: opened once, one turn at a time, closed at the end."""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from ferrule.config import Configuration, Sources
from ferrule.dispatch.pending import PendingTable
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import Event, SandboxStatus
from ferrule.protocol.settings import Settings
from ferrule.session.opening import open_session
from ferrule.session.project_trust import load_asking
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Session
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, Question

Words = tuple[ContentPart, ...]


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is opened with. `sources`: where the settings came from, if the project has files that the user
    has not confirmed; `warnings` came with them."""

    settings: Settings
    stored: StoredSession | None = None
    sources: Sources | None = None
    warnings: tuple[str, ...] = ()


class Talk:
    """The front end of a session, and the session. What is said before it is open waits."""

    can_answer = True

    def __init__(self, settings: Settings, show: Callable[[Event | ToolEvent], None]) -> None:
        self.settings = settings
        self.on_event = show
        self.session: Session | None = None
        self._pending = PendingTable()
        """Questions that come before the session."""
        self._waiting: list[Words] = []
        self._working = False

    async def open(self, settings: Settings, stored: StoredSession | None = None) -> None:
        """Open a session in place of the one before. Raises what `open_session` does; then nothing is open."""
        await self.close()
        self.settings = settings
        self.session = await open_session(settings, self, stored=stored)

    async def confirmed(self, sources: Sources) -> Configuration:
        """Load the configuration again, after the user was asked about the project's files."""
        return await load_asking(sources, self, self._pending)

    async def close(self) -> None:
        """Close the session, if one is open."""
        session, self.session = self.session, None
        if session is not None:
            await session.aclose()

    @property
    def model_name(self) -> str:
        """The model that is asked."""
        return "" if self.session is None else self.session.model_name

    async def confinement(self) -> SandboxStatus | None:
        """Return what confines commands; None where the session runs none."""
        toolset = None if self.session is None else self.session.toolset
        return await toolset.workspace.status() if toolset is not None and toolset.runs_commands else None

    @property
    def is_working(self) -> bool:
        """Whether a turn runs, or one is about to."""
        return self._working

    def say(self, words: Words) -> bool:
        """Take what the user says: to the running turn, where there is one. Return whether a turn must be run."""
        if self.session is not None and self.session.is_running:
            self.session.steer(words)
            return False
        self._waiting.append(words)
        return not self._working and self.session is not None

    async def work(self) -> None:
        """Run turns until nothing waits any more. What a turn fails with is one of its events."""
        self._working = True
        try:
            while self.session is not None and self._waiting:
                words = tuple(part for some in self._waiting for part in some)
                self._waiting.clear()
                await self._turn(self.session, words)
        finally:
            self._working = False

    async def _turn(self, session: Session, words: Words) -> None:
        with suppress(FerruleError):  # the event of its end has told it
            await session.run(words)
        if left := session.unread():
            self._waiting.append(left)

    def interrupt(self) -> bool:
        """End the running turn. Return False where none runs."""
        return self.session is not None and self.session.interrupt()

    def questions(self) -> list[Question]:
        """Return what the user is asked now, oldest first."""
        return [*self._pending.questions(), *([] if self.session is None else self.session.pending_approvals())]

    def answer(self, request_id: str, answer: Answer) -> None:
        """Answer a question, if it still waits."""
        with suppress(UsageError):
            if self.session is None:
                self._pending.decide(request_id, answer)
            else:
                self.session.decide(request_id, answer)


def as_words(text: str) -> Words:
    """Return a text as what the user says."""
    return (InputText(text),)
