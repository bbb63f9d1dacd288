"""What a door for people holds: a session that is opened, replaced, asked one turn at a time, closed at the end."""

import asyncio
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.config import Configuration, Sources
from ferrule.dispatch.front_end import Pace
from ferrule.dispatch.pending import PendingTable
from ferrule.history.compaction import is_words_of_user
from ferrule.model.provider import list_models
from ferrule.model.wire import WireModel
from ferrule.protocol.content import ContentPart, InputText, text_of
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import Event, ExecCommandBegin, McpServerStatus, SandboxStatus
from ferrule.protocol.items import Message
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.settings import Settings
from ferrule.session.by_hand import run_by_hand
from ferrule.session.index import SessionIndex, locate
from ferrule.session.opening import open_session
from ferrule.session.project_trust import load_asking
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import StoredSession, read_rollout
from ferrule.session.session import Session
from ferrule.tools.buffers import Buffers
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, Question
from ferrule.tools.tasks import end_tasks

Words = tuple[ContentPart, ...]
UNSAVED = (
    "a part of this session could not be saved and would be lost: it can only go on as it is, until there is room in "
    "its folder again and /compact saves it"
)


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is opened with. `sources`: where the settings came from, if the project has files that the user
    has not confirmed; `warnings` came with them. `settings_in` are the settings in another directory."""

    settings: Settings
    stored: StoredSession | None = None
    sources: Sources | None = None
    warnings: tuple[str, ...] = ()
    settings_in: Callable[[str], Settings] | None = None


class Talk:
    """The front end of a session, and the session. What is said before it is open waits."""

    can_answer = True

    def __init__(
        self,
        opening: Opening,
        show: Callable[[Event | ToolEvent], None],
        pace: Pace | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        self.settings = opening.settings
        self._settings_in = opening.settings_in
        self._show = show
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.pace = pace
        self.buffers = buffers
        """See `FrontEnd`."""
        self.session: Session | None = None
        self.said: list[str] = []
        """What each turn began with; empty where it is not known."""
        self.mcp_states: dict[str, str] = {}
        """What was last heard of each MCP server."""
        self.failure: FerruleError | None = None
        """What the last turn failed with."""
        self._pending = PendingTable()
        """Questions that come before the session."""
        self._waiting: list[Words] = []
        self._for_model: list[str] = []
        self._by_hand: set[asyncio.Task[None]] = set()
        """Commands that the user has given."""
        self._begun: set[str] = set()
        """The calls whose commands have begun."""
        self._working = self._opening = False

    def on_event(self, event: Event | ToolEvent) -> None:
        """Show an event of the session, which a tool may send from a thread of its own."""
        if threading.get_ident() == self._thread:
            self._take_event(event)
        else:
            self._loop.call_soon_threadsafe(self._take_event, event)

    def _take_event(self, event: Event | ToolEvent) -> None:
        match event:
            case ExecCommandBegin(call_id=call_id):
                self._begun.add(call_id)
            case McpServerStatus(server=server, status=status, message=message):
                self.mcp_states[server] = f"{status} {message}".strip()
        self._show(event)

    async def open(
        self, settings: Settings, stored: StoredSession | None = None, session_id: str | None = None
    ) -> None:
        """Open a session in place of the one before, a new one with `session_id` if it is given. Raises what
        `open_session` does; then that one goes on."""
        before, session = self.settings, self.session
        self._opening = True
        try:
            await self.close()
            await self._open(settings, stored, session_id)
        except FerruleError:
            if session is not None:
                await self._open(before, self._stored(session.id), session.id)
            raise
        finally:
            self._opening = False

    async def _open(self, settings: Settings, stored: StoredSession | None, session_id: str | None) -> None:
        self.settings = settings
        self.session = await open_session(settings, self, stored=stored, session_id=session_id)
        self.said = [] if stored is None else _turns(stored, settings.home)
        self._for_model.clear()

    async def confirmed(self, sources: Sources) -> Configuration:
        """Load the configuration again, after the user was asked about the project's files."""
        return await load_asking(sources, self, self._pending)

    async def wake(self, session_id: str) -> None:
        """Open the session again after `close`, as it was. Raises what `open_session` does."""
        await self._open(self.settings, self._stored(session_id), session_id)

    async def close(self) -> None:
        """Close the session, if one is open, and end the user's commands."""
        await end_tasks(self._by_hand)
        session, self.session = self.session, None
        if session is not None:
            await session.aclose()

    async def resume(self, word: str) -> StoredSession:
        """Go on with a stored session, by its id, the beginning of it or its name, in its directory and with its
        rights. Raises `UsageError`; then the session before stays."""
        own = self._settings_of(read_rollout(locate(self.settings.home, word)))
        settings, stored = resume_settings(own, word, Given())
        await self.open(settings, stored)
        return stored

    def _settings_of(self, stored: StoredSession) -> Settings:
        cwd = stored.context.cwd if stored.context is not None else self.settings.cwd
        if cwd == self.settings.cwd or self._settings_in is None or not Path(cwd).is_dir():
            return self.settings
        return self._settings_in(cwd)

    async def change(self, settings: Settings) -> None:
        """Go on with the same conversation under other settings; under the same, where that fails."""
        before, session = self.settings, self.session
        if session is None:
            return
        if self.said and before.ephemeral:
            raise UsageError("this session is not stored, so it cannot go on under other settings; /new begins one")
        self._be_at_rest(session)
        await self.open(settings, self._stored(session.id), session.id)

    def _be_at_rest(self, session: Session) -> None:
        """Raise `UsageError` where something would be lost if the session was closed and read again from its file."""
        if session.has_children_at_work:
            raise UsageError("sub-agents are still at work, and would be ended: wait, or interrupt them by Esc")
        if not session.is_stored_whole:
            raise UsageError(UNSAVED)

    def fork(self, session: Session, turns: int | None = None) -> str:
        """Copy the session, up to the end of a turn; return the copy's id. Raises `UsageError`."""
        self._be_at_rest(session)
        if not self.said:
            raise UsageError("nothing was said yet, so there is nothing to copy")
        return SessionIndex(self.settings.home).fork(session.id, turns)

    def _stored(self, session_id: str) -> StoredSession | None:
        return (
            read_rollout(locate(self.settings.home, session_id)) if self.said and not self.settings.ephemeral else None
        )

    async def before_turn(self, number: int) -> StoredSession | None:
        """Go on in a copy of the session as it was before its turn `number`; in a new one before the first."""
        if self.session is None or number <= 1:
            await self.open(self.settings)
            return None
        return await self.resume(self.fork(self.session, number - 1))

    @property
    def model_name(self) -> str:
        """The model that is asked."""
        return "" if self.session is None else self.session.model_name

    async def models(self) -> tuple[str, ...]:
        """Return the models that the server lists. Raises `ModelError`."""
        model = None if self.session is None else self.session.model
        return await list_models(model) if isinstance(model, WireModel) else ()

    async def confinement(self) -> SandboxStatus | None:
        """Return what confines commands; None where the session runs none."""
        toolset = None if self.session is None else self.session.toolset
        return await toolset.workspace.status() if toolset is not None and toolset.runs_commands else None

    @property
    def is_working(self) -> bool:
        """Whether a turn runs, or one is about to."""
        return self._working or (self.session is not None and self.session.is_running)

    def say(self, words: Words) -> bool:
        """Take what the user says: to the running turn, where there is one. Return whether a turn must be run. Raises
        `UsageError` where no session is open, and none will be."""
        if self.session is None and not self._opening:
            raise UsageError("no session is open, so this was not sent; /new begins one")
        if self._working and self.session is not None and self.session.is_running:
            self.session.steer(words)
            return False
        self._waiting.append(words)
        return not self.is_working and self.session is not None

    async def catch_up(self) -> None:
        """Run the turns of what was said while none could run: a compaction, a session that was being opened."""
        if self._waiting and not self.is_working:
            await self.work()

    def tell_model(self, text: str) -> None:
        """Let the model read a text before the user's next words."""
        self._for_model.append(text)

    async def work(self) -> None:
        """Run turns until nothing waits any more. What a turn fails with is one of its events."""
        self._working = True
        try:
            while self.session is not None and self._waiting:
                notes = tuple(map(InputText, self._for_model))
                words = tuple(part for some in self._waiting for part in some)
                self._waiting.clear()
                self._for_model.clear()
                self.said.append(text_of(words))
                await self._turn(self.session, (*notes, *words))
        finally:
            self._working = False

    async def _turn(self, session: Session, words: Words) -> None:
        self.failure = None
        try:
            await session.run(words)
        except FerruleError as error:  # the event of its end has told it
            self.failure = error
        if left := session.unread():
            self._waiting.append(left)

    @property
    def runs_command(self) -> bool:
        """Whether a command of the user runs."""
        return bool(self._by_hand)

    async def run_command(self, script: str, *, told: bool = True) -> str:
        """Run a script as a command of the model would run, until it has ended or `interrupt` ends it. `told`: the
        model reads of it. Return why it was not run; empty if it was. Raises `UsageError` where the session runs
        none."""
        if self.session is None:
            raise UsageError("no session is open; /new begins one")
        call_id = f"call_{secrets.token_hex(8)}"
        refused = ""

        def hear(output: ToolOutput) -> None:
            nonlocal refused
            refused = "" if call_id in self._begun else output.text
            if told:
                self.tell_model(f"The user has run a command here:\n$ {script}\n{output.text}")

        running = asyncio.create_task(run_by_hand(self.session.toolset, script, call_id, hear))
        self._by_hand.add(running)
        try:
            await asyncio.wait([running])
        finally:
            self._by_hand.discard(running)
            await end_tasks([running])
            begun = call_id in self._begun
            self._begun.discard(call_id)
        if not running.cancelled():
            running.result()
        elif not begun:
            refused = f"ended before it began: {script}"
        elif told:
            self.tell_model(f"The user has ended this command:\n$ {script}")
        return refused

    def interrupt(self) -> bool:
        """End the running turn, else the user's own commands. Return False where nothing runs."""
        if self.session is not None and self.session.interrupt():
            return True
        for task in self._by_hand:
            task.cancel()
        return bool(self._by_hand)

    def questions(self) -> list[Question]:
        """Return what the user is asked now, oldest first."""
        return [*self._pending.questions(), *([] if self.session is None else self.session.pending_approvals())]

    def answer(self, request_id: str, answer: Answer) -> None:
        """Answer a question, if it still waits."""
        for decide in (self._pending.decide, *([] if self.session is None else [self.session.decide])):
            with suppress(UsageError):
                decide(request_id, answer)


def _turns(stored: StoredSession, home: str) -> list[str]:
    """Return what each turn of a stored session began with: as many as there are turns, empty where it is not clear."""
    words = [
        text_of(item.view.content)
        for response in stored.responses
        for item in response
        if is_words_of_user(item) and isinstance(item.view, Message)
    ]
    with suppress(UsageError):
        count = SessionIndex(home).find(stored.meta.id).turns
        return words if len(words) == count else [""] * count
    return words


def as_words(text: str) -> Words:
    """Return a text as what the user says."""
    return (InputText(text),)
