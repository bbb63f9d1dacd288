"""A thread that is open: a session, and the turn that runs in it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from ferrule._version import __version__
from ferrule.config import Configuration
from ferrule.doors.app_server import forms
from ferrule.doors.app_server.openings import settings_for_turn
from ferrule.doors.app_server.questions import asked
from ferrule.doors.app_server.shapes import told
from ferrule.doors.app_server.shapes.common import UserInput
from ferrule.doors.app_server.shapes.requests import (
    ThreadOpened,
    TurnResult,
    TurnStartParams,
    TurnSteered,
    TurnSteerParams,
)
from ferrule.doors.app_server.shapes.threads import Active, ActiveFlag, Idle, Thread, ThreadStatus, Turn
from ferrule.doors.app_server.translation import Sink, Translation
from ferrule.model.calls import random_id
from ferrule.protocol.content import text_of
from ferrule.protocol.dynamic_tools import DynamicToolSpec
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import (
    DynamicToolCallRequest,
    ElicitationRequest,
    Event,
    ExecApproval,
    ItemCompleted,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    UserInputRequest,
)
from ferrule.rpc import RpcError
from ferrule.session.rollout import StoredSession, new_session_id
from ferrule.session.session import Session
from ferrule.session.talk import Opening, Talk, Words
from ferrule.stdio import Outbox
from ferrule.tools.events import ChildEvent, ToolEvent
from ferrule.tools.questions import Answer, Waiting
from ferrule.tools.tasks import end_tasks

EPHEMERAL = "an ephemeral thread cannot go on under other settings: start another one"
TURN_ENDS = TurnCompleted | TurnFailed | TurnAborted


class Client(Sink, Protocol):
    """What a thread needs of its client."""

    @property
    def outbox(self) -> Outbox: ...
    @property
    def name(self) -> str: ...
    def ask(self, thread: "OpenThread", question: Waiting, params: told.Asking) -> None: ...
    def waiting(self, thread: "OpenThread") -> list[Waiting]: ...
    def withdraw(self, thread: "OpenThread", is_over: Callable[[Waiting], bool]) -> None: ...


class OpenThread:
    """One thread of a client."""

    def __init__(
        self, client: Client, configuration: Configuration, thread_id: str, tools: Sequence[DynamicToolSpec]
    ) -> None:
        self.id = thread_id
        self.forked_from: str | None = None
        self.created_at = int(time.time())
        self.name: str | None = None
        self.preview = ""
        self._client = client
        self._tools = tools
        settings = configuration.settings
        self.talk = Talk(Opening(settings=settings), self._show, pace=client.outbox.room)
        self.translation = Translation(thread_id, client, settings.cwd)
        self._children: dict[str, Translation] = {}
        self._working: asyncio.Task[None] | None = None
        self._compacts = False

    @classmethod
    async def open(
        cls,
        client: Client,
        configuration: Configuration,
        stored: StoredSession | None = None,
        tools: Sequence[DynamicToolSpec] = (),
    ) -> "OpenThread":
        """Open a thread, a new one or a stored one. Raises `UsageError` and `ModelError`."""
        thread_id = new_session_id() if stored is None else stored.meta.id
        thread = cls(client, configuration, thread_id, tools)
        await thread.talk.open(configuration.settings, stored, thread_id)
        try:
            thread._equip()
        except UsageError:
            await thread.talk.close()
            raise
        for warning in configuration.warnings:
            client.tell(told.Warned(message=warning, thread_id=thread_id))
        return thread

    @property
    def session(self) -> Session:
        """The session. Raises `RpcError` where it could not be opened again under other settings."""
        if self.talk.session is None:
            raise RpcError(f"thread {self.id} is closed: thread/resume opens it again")
        return self.talk.session

    @property
    def is_working(self) -> bool:
        """Whether a turn runs, or a compaction."""
        return self._working is not None and not self._working.done()

    @property
    def status(self) -> ThreadStatus:
        """How the thread is."""
        return Active(active_flags=self._flags(self.id)) if self.is_working else Idle()

    def _equip(self) -> None:
        """Give a session that was opened what it does not get from its settings."""
        session = self.session
        if self._tools:
            session.add_dynamic_tools(self._tools)
        profile = session.toolset.conversation.profile
        self.translation.cwd = self.talk.settings.cwd
        self.translation.window = self.talk.settings.model.context_window or profile.context_window

    # Turns

    async def start_turn(self, params: TurnStartParams, answer: Callable[[TurnResult], None]) -> None:
        """Run a turn; `answer` is called as soon as it runs. Where one runs already, it is told. Raises `RpcError`,
        `UsageError` and `ModelError`."""
        words = forms.words_of(params.input)
        running = self.translation.turn
        if self.is_working and running is not None and not self._compacts:
            self._steer(params.input, words, params.client_user_message_id)
            answer(TurnResult(turn=running))
            return
        self.check_idle()
        await self._change(params)
        self.translation.said, self.translation.client_id = params.input, params.client_user_message_id
        self.preview = self.preview or " ".join(text_of(words).split())[:200]
        begun = asyncio.get_running_loop().create_future()

        def tell(turn: Turn) -> None:
            self.translation.on_started = lambda turn: None
            begun.set_result(None)
            answer(TurnResult(turn=msgspec.structs.replace(turn, started_at=None)))

        self.translation.on_started = tell
        self.talk.said.append(text_of(words))
        self._working = asyncio.create_task(self._work(self.session, words))
        await asyncio.wait([self._working, begun], return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            self._working.result()
            raise RpcError("the turn did not begin")

    async def _work(self, session: Session, words: Words) -> None:
        """Run a turn, and further ones for what was said too late for it."""
        try:
            while words and not (await session.run(words)).aborted:
                words = session.unread()
        except FerruleError:
            if self.translation.said:  # nothing was told: it failed before it began
                self.translation.said = ()
                raise

    async def _change(self, params: TurnStartParams) -> None:
        """Go on under the settings that come with a turn, where they are others."""
        settings = settings_for_turn(self.talk.settings, params)
        if settings == self.talk.settings:
            return
        if settings.ephemeral and self.talk.said:
            raise RpcError(EPHEMERAL)
        try:
            await self.talk.change(settings)
        finally:
            if self.talk.session is not None:
                self._equip()

    def steer(self, params: TurnSteerParams) -> TurnSteered:
        """Say something to the running turn. Raises `RpcError`."""
        turn = self.check_running("steer", params.expected_turn_id)
        self._steer(params.input, forms.words_of(params.input), params.client_user_message_id)
        return TurnSteered(turn_id=turn.id)

    def _steer(self, given: tuple[UserInput, ...], words: Words, client_id: str | None) -> None:
        self.session.steer(words)
        self.translation.hear(given, client_id)

    def check_running(self, what: str, turn_id: str) -> Turn:
        """Return the running turn, if it is this one. Raises `RpcError`."""
        turn = self.translation.turn
        if turn is None or not self.is_working:
            raise RpcError(f"no active turn to {what}")
        if what == "steer" and self._compacts:
            raise RpcError("the active turn is a compaction, which cannot be steered: wait for its end")
        if turn.id != turn_id:
            raise RpcError(f"expected active turn id {turn_id} but found {turn.id}")
        return turn

    def check_idle(self) -> None:
        """Raise `RpcError` while a turn runs."""
        if self.is_working:
            raise RpcError("a turn is running: wait for its end, or interrupt it")

    def compact(self) -> None:
        """Replace the conversation so far by a summary, in a turn of its own."""
        self._working = asyncio.create_task(self._compact(self.session))

    async def _compact(self, session: Session) -> None:
        self.translation.begin_turn(random_id())
        self._compacts = True
        try:
            done = await session.compact()
        except FerruleError as error:
            self.translation.fail(str(error))
        else:
            self.translation.end_turn("interrupted" if done is None else "completed")
        finally:
            self._compacts = False

    # Events and questions

    def _show(self, event: Event | ToolEvent) -> None:
        match event:
            case ChildEvent():
                self._translation(event.thread_id, event.parent_thread_id).take(event.event)
            case ExecApproval() | UserInputRequest() | ElicitationRequest() | DynamicToolCallRequest():
                self._ask(event)
            case _:
                self.translation.take(event)
        if isinstance(event, TURN_ENDS) or (isinstance(event, ItemCompleted) and event.output is not None):
            self._client.withdraw(self, self._is_over)

    def _translation(self, thread_id: str, parent_id: str = "") -> Translation:
        """Return the translation of a sub-agent's events, or of the thread's own."""
        if thread_id in ("", self.id):
            return self.translation
        known = self._children.get(thread_id)
        if known is None:
            known = self._children[thread_id] = Translation(thread_id, self._client, self.translation.cwd)
            shape = self.shape()
            self._client.tell(
                told.ThreadStarted(
                    thread=msgspec.structs.replace(
                        shape,
                        id=thread_id,
                        session_id=self.id,
                        parent_thread_id=parent_id or self.id,
                        name=None,
                        preview="",
                        path=None,
                        source={"subAgent": {"other": "spawn_agent"}},
                    )
                )
            )
        return known

    def _ask(self, question: Waiting) -> None:
        translation = self._translation(getattr(question, "agent_id", ""))
        if isinstance(question, ExecApproval):
            translation.take(question)
        if not isinstance(question, DynamicToolCallRequest):
            translation.status(self._flags(translation.thread_id, question))
        params = asked(question, translation.thread_id, translation.turn_id)
        self._client.ask(self, question, params)

    def answer(self, question: Waiting, answer: Answer) -> None:
        """Take the client's answer."""
        if not isinstance(question, DynamicToolCallRequest):
            translation = self._translation(question.agent_id)
            translation.status(self._flags(translation.thread_id))
        self.talk.answer(question.request_id, answer)

    def _is_over(self, question: Waiting) -> bool:
        """Whether a question waits no longer: it was withdrawn, or its call has ended."""
        return self.talk.session is None or not self.talk.session.is_waiting(question)

    def _flags(self, thread_id: str, *more: Waiting) -> tuple[ActiveFlag, ...]:
        """Return what a thread waits for: this one, or a sub-agent's."""
        flags: dict[ActiveFlag, None] = {}
        for question in (*self._client.waiting(self), *more):
            if isinstance(question, DynamicToolCallRequest) or (question.agent_id or self.id) != thread_id:
                continue
            approval = isinstance(question, ExecApproval)
            flags["waitingOnApproval" if approval else "waitingOnUserInput"] = None
        return tuple(flags)

    # The thread as an object

    def shape(self, turns: tuple[Turn, ...] = ()) -> Thread:
        """Return the thread as it is told."""
        settings, path = self.talk.settings, self.session.path
        return Thread(
            id=self.id,
            session_id=self.id,
            cwd=settings.cwd,
            created_at=self.created_at,
            updated_at=int(time.time()),
            status=self.status,
            model_provider=settings.provider_name,
            preview=self.preview,
            name=self.name,
            model=self.talk.model_name,
            reasoning_effort=settings.model.reasoning_effort,
            ephemeral=settings.ephemeral,
            path=None if path is None else str(path),
            forked_from_id=self.forked_from,
            cli_version=__version__,
            originator=self._client.name,
            turns=turns,
        )

    def opened(self, turns: tuple[Turn, ...] = ()) -> ThreadOpened:
        """Return the thread and what it works with."""
        settings = self.talk.settings
        return ThreadOpened(
            thread=self.shape(turns),
            model=self.talk.model_name,
            model_provider=settings.provider_name,
            cwd=settings.cwd,
            approval_policy=settings.approval_policy.value,
            sandbox=forms.policy_shape(settings.sandbox_policy),
            reasoning_effort=settings.model.reasoning_effort,
            service_tier=settings.model.service_tier,
        )

    async def aclose(self) -> None:
        """End the turn and close the session."""
        await self.talk.close()
        if self._working is not None:
            await end_tasks([self._working])
            with suppress(asyncio.CancelledError, FerruleError):
                self._working.result()
