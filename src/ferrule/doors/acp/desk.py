"""One session of a client: its prompts in turn, its questions, its settings."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from acp.exceptions import RequestError
from acp.helpers import update_available_commands, update_current_mode
from acp.interfaces import Client
from acp.schema import (
    ConfigOptionUpdate,
    ElicitationFormSessionMode,
    ElicitationSchema,
    PromptResponse,
    RequestPermissionResponse,
    SessionInfoUpdate,
    SessionModeState,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)
from pydantic import BaseModel, ValidationError

from ferrule.config import Configuration, Sources
from ferrule.doors.acp import asking
from ferrule.doors.acp.choices import MODE, Option, chosen, mode_of, modes_of, options_of
from ferrule.doors.acp.commands import Command, available, command_in
from ferrule.doors.acp.updates import Updates
from ferrule.doors.acp.words import Block, beside_text, command_text, words_of
from ferrule.history.compaction import is_words_of_user
from ferrule.history.pairs import answered_id
from ferrule.model.stream import ModelError
from ferrule.prompts import PREFIX, expand_prompt
from ferrule.protocol.content import ContentPart, text_of
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import (
    AskedQuestion,
    ElicitationRequest,
    Event,
    ExecApproval,
    TokenCount,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    UserInputRequest,
)
from ferrule.protocol.items import Message
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Session
from ferrule.session.talk import Opening, Talk, as_words
from ferrule.session.turn import TurnLimit
from ferrule.tools.buffers import Buffers
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, NoAnswer, Question
from ferrule.tools.tasks import end_tasks

MAX_WAITING = 16
"""Prompts of one session that wait for the one that runs: an editor sends one at a time."""
LONGEST_TITLE = 200
"""Characters of what a session is called: how its first prompt begins, as in the list of sessions."""
MODELS_S = 3.0
"""Seconds for a server to list its models; a session does not wait longer for it."""
CLOSED = "the session is closed"
"""Why a question of it has no answer."""


class Line(NamedTuple):
    """The way to a client: `show` sends an update of a session, `pace` waits until the client has read enough."""

    client: Client
    show: Callable[[str, BaseModel], None]
    pace: Callable[[], Awaitable[None]]
    terminals: bool = False
    """The client shows a command's output as a terminal."""
    has_forms: bool = False
    """The client asks its user by forms."""


class Place(NamedTuple):
    """Where a session works. `load` loads its configuration with a mode; None is the configured one. `complete` adds
    what the client brought."""

    sources: Callable[[str | None], Sources]
    load: Callable[[str | None], Configuration]
    complete: Callable[[Settings], Settings]


class Desk:
    """Serves one session. `id` is the session's own, in every form that its settings take."""

    def __init__(self, session_id: str, line: Line, place: Place, opening: Opening, buffers: Buffers) -> None:
        self.id = session_id
        self._line = line
        self._place = place
        self._opening = opening
        self._began = opening.settings
        """The settings that the session was opened with."""
        self.talk = Talk(opening, self._show_event, line.pace, buffers)
        self._updates = Updates(self.show, opening.settings.cwd, terminals=line.terminals)
        self._models: tuple[str, ...] = ()
        self._turns = asyncio.Lock()
        self._waiting = 0
        self._cancelled = 0
        """How often what ran was cancelled."""
        self._closed = False
        self.is_awake = True
        """Whether it holds processes and connections, or is about to."""
        self._wanted: Settings | None = None
        """The settings that hold from the next prompt on."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._ends: list[TurnCompleted | TurnFailed | TurnAborted] = []

    async def open(self) -> None:
        """Open the session. Raises what `open_session` does."""
        async with self._turns:
            await self.talk.open(self._opening.settings, self._opening.stored, self.id)
        try:
            async with asyncio.timeout(MODELS_S):
                self._models = await self.talk.models()
        except (TimeoutError, ModelError):
            self._models = ()  # the one that is used is known

    @property
    def session(self) -> Session:
        """The open session. Raises `UsageError` where it is closed."""
        if self.talk.session is None:
            raise UsageError(CLOSED)
        return self.talk.session

    @property
    def settings(self) -> Settings:
        """The settings of the next turn."""
        return self._wanted or self.talk.settings

    def options(self) -> list[Option]:
        """Return what can be chosen, with what is chosen."""
        model = self.settings.model.model or self.talk.model_name
        return options_of(self.settings, self.modes(), model, self._models)

    def modes(self) -> SessionModeState:
        """Return the modes there are, and the one of the next turn."""
        return modes_of(self.settings, mode_of(self._began))

    def show(self, update: BaseModel) -> None:
        """Send an update."""
        self._line.show(self.id, update)

    def note(self, text: str) -> None:
        """See `Target`."""
        self._updates.note(text)

    def greet(self) -> None:
        """Tell a client that knows the session which commands there are, and what it should know."""
        try:
            self.show(update_available_commands(available(self.talk.settings)))
        except FerruleError as error:  # the folder of prompts
            self.note(f"⚠ {error}")
        for text in self._opening.warnings:
            self.note(f"⚠ {text}")

    async def replay(self, stored: StoredSession) -> None:
        """Tell a client what was said in a stored session, as fast as it reads."""
        for response in stored.responses:
            for item in response:
                await self._line.pace()
                view, answered = item.view, answered_id(item.view)
                if isinstance(view, Message) and view.role == "user":
                    if is_words_of_user(item):
                        self._updates.said(_parts(view.content))
                elif answered is not None:
                    self._updates.answered(answered, getattr(view, "output", ""))
                else:
                    self._updates.stored(item)
        self._updates.on_event(TurnAborted(turn_id=""))
        if stored.damage:
            self.note(f"⚠ {stored.damage}")

    def _show_event(self, event: Event | ToolEvent) -> None:
        match event:
            case ExecApproval() | UserInputRequest() | ElicitationRequest():
                self._asking[event.request_id] = asyncio.create_task(self._ask(event))
                return
            case TokenCount():
                self._show_usage()
            case TurnCompleted() | TurnFailed() | TurnAborted():
                self._ends.append(event)
        self._updates.on_event(event)

    def _show_usage(self) -> None:
        session = self.talk.session
        window = None if session is None else session.window
        if session is not None and window is not None:
            # Prices have no currency here, and a cost has one there.
            self.show(UsageUpdate(session_update="usage_update", used=session.history.tokens, size=window))

    async def prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        """Run a turn, or a command, when those before have ended. Raises `FerruleError`."""
        words, text = words_of(blocks), command_text(blocks)
        command = command_in(text)
        if text.startswith(PREFIX):
            words = (*as_words(expand_prompt(text, self.talk.settings.home)), *beside_text(blocks))
        if command is not None and command.says:
            words = (*as_words(command.says), *beside_text(blocks))
        if self._waiting >= MAX_WAITING:
            raise UsageError(f"{MAX_WAITING} prompts of this session wait already")
        cancelled = self._cancelled
        self._waiting += 1
        try:
            async with self._turns:
                return await self._run(words, command, cancelled)
        finally:
            self._waiting -= 1

    async def _run(self, words: tuple[ContentPart, ...], command: Command | None, cancelled: int) -> PromptResponse:
        """Do it unless it was cancelled since."""
        await self._wake()
        if self._cancelled == cancelled:
            await self._confirm()
            await self._settle_telling()
        if self._cancelled != cancelled:
            return PromptResponse(stop_reason="cancelled")
        try:
            if command is None or command.run is None:
                return await self._turn(words, cancelled)
            await command.run(self)
            return PromptResponse(stop_reason="end_turn" if self._cancelled == cancelled else "cancelled")
        finally:
            await self._settle_telling()

    async def _turn(self, words: tuple[ContentPart, ...], cancelled: int) -> PromptResponse:
        self._ends.clear()
        self.session  # noqa: B018 - it must be open
        if not self.talk.said and (title := " ".join(text_of(words).split())[:LONGEST_TITLE]):
            self.show(SessionInfoUpdate(session_update="session_info_update", title=title))
        self.talk.say(words)
        await self.talk.work()
        end = self._ends[-1] if self._ends else None
        await self._withdraw("the turn has ended")
        if self._cancelled != cancelled or isinstance(end, TurnAborted):
            return PromptResponse(stop_reason="cancelled")
        if isinstance(end, TurnFailed):
            if isinstance(self.talk.failure, TurnLimit):
                self.note(f"⚠ {end.message}")
                return PromptResponse(stop_reason="max_turn_requests")
            raise ModelError(end.message)
        return PromptResponse(stop_reason="end_turn", usage=None if end is None else _usage(end.usage))

    async def cancel(self) -> None:
        """End what runs and what waits, also the questions."""
        self._cancelled += 1
        self.talk.interrupt()
        await self._withdraw("the turn was cancelled")

    async def _withdraw(self, reason: str) -> None:
        asked = dict(self._asking)
        await end_tasks(asked.values())
        for request_id in asked:
            self.talk.answer(request_id, NoAnswer(reason))

    async def choose(self, option: str, value: object) -> None:
        """Let something hold from the next prompt on. Raises `UsageError`."""
        if not isinstance(value, str):
            raise UsageError(f"the value of {option!r} is one of its names")
        if option == MODE:
            self._wanted = self._in_mode(value)
        else:
            self._wanted = chosen(self.settings, option, value)
        if not self._turns.locked():
            async with self._turns:
                await self._settle()

    def _in_mode(self, mode: str) -> Settings:
        """Return the settings of a mode: the configured ones of it, and all else as it is. Raises `UsageError`."""
        now, known = self.settings, [one.id for one in self.modes().available_modes]
        if mode not in known:
            raise UsageError(f"there is no mode {mode!r}; it is one of {', '.join(known)}")
        if mode == mode_of(now):
            return now
        configured = self._began if mode == mode_of(self._began) else self._place.load(mode).settings
        return msgspec.structs.replace(now, sandbox_policy=configured.sandbox_policy)

    async def _settle(self) -> None:
        """Go on under the settings that are wanted, where nothing runs. Raises what `Talk.change` does."""
        wanted, before = self._wanted, self.talk.settings
        self._wanted = None
        if wanted is None or wanted == before:
            return
        if self.talk.session is None:
            self.talk.settings = wanted
        await self.talk.change(wanted)
        if mode_of(self.talk.settings) != mode_of(before):
            self.show(update_current_mode(mode_of(self.talk.settings)))
        self.show(ConfigOptionUpdate(session_update="config_option_update", config_options=self.options()))

    async def _settle_telling(self) -> None:
        try:
            await self._settle()
        except FerruleError as error:
            self.note(f"⚠ {error}")

    async def _confirm(self) -> None:
        """Ask once about files of the project that the user has not confirmed."""
        sources = self._opening.sources
        if sources is None:
            return
        self._opening = msgspec.structs.replace(self._opening, sources=None)
        before = self._place.complete(self._place.load(None).settings)
        loaded = await self.talk.confirmed(sources)
        confirmed = self._place.complete(loaded.settings)
        if confirmed != before:
            now = self.settings
            self._wanted = msgspec.structs.replace(
                confirmed, sandbox_policy=now.sandbox_policy, approval_policy=now.approval_policy, model=now.model
            )

    async def _ask(self, question: Question) -> None:
        """Ask the client's user, and hand the answer over."""
        try:
            answer = await self._answer(question)
        except RequestError as error:
            answer = NoAnswer(f"the editor did not ask its user: {error}")
        except (ValidationError, ConnectionError):
            answer = NoAnswer("the editor's answer cannot be read")
        finally:
            self._asking.pop(question.request_id, None)
        self.talk.answer(question.request_id, answer)

    async def _answer(self, question: Question) -> Answer:
        match question:
            case ExecApproval():
                return await self._approval(question)
            case UserInputRequest():
                return await self._user_input(question)
            case ElicitationRequest():
                return await self._elicitation(question)

    async def _approval(self, question: ExecApproval) -> Answer:
        """Ask about a call. A host is asked about beside the call that runs."""
        apart = question.kind == asking.NETWORK
        name = question.request_id if apart else question.call_id
        call_id = self._updates.call_id(name, question.agent_id)
        call = asking.call_of(question, call_id, self.talk.settings.cwd)
        answer = await self._permission(call, asking.options_of(question))
        decision = asking.decision_of(question, answer)
        self._updates.decided(call_id, allowed=decision.decision in asking.ALLOWED, apart=apart)
        return decision

    async def _permission(self, call: ToolCallUpdate, options: Sequence[Any]) -> RequestPermissionResponse:
        return await self._line.client.request_permission(session_id=self.id, tool_call=call, options=list(options))

    async def _user_input(self, question: UserInputRequest) -> Answer:
        asked = question.asked()
        if self._line.has_forms:
            return await self._form(asked)
        answers: dict[str, object] = {}
        for number, one in enumerate(asked):
            options = asking.choices_of(one)
            if not options:
                return NoAnswer(asking.NOT_ASKED)
            call_id = self._updates.call_id(f"{question.request_id}:{number}", question.agent_id)
            call = asking.question_call(one, call_id)
            label = asking.choice_in(one, await self._permission(call, options))
            if label is None:
                return NoAnswer(asking.NO_ANSWER)
            answers[one.id] = label
        return asking.answers_in(asked, answers)

    async def _form(self, asked: Sequence[AskedQuestion]) -> Answer:
        message = "\n\n".join(one.question for one in asked)
        answer = asking.elicited(await self._elicit(message, asking.form_of(asked)))
        if answer.action != "accept" or not isinstance(answer.content, dict):
            return NoAnswer("the user declined to answer")
        return asking.answers_in(asked, answer.content)

    async def _elicitation(self, question: ElicitationRequest) -> Answer:
        if not self._line.has_forms:
            return NoAnswer(asking.NOT_ASKED)
        schema = ElicitationSchema.model_validate(question.schema or {})
        return asking.elicited(await self._elicit(f"The MCP server {question.server} asks: {question.message}", schema))

    async def _elicit(self, message: str, schema: ElicitationSchema) -> object:
        mode = ElicitationFormSessionMode(session_id=self.id, requested_schema=schema)
        return await self._line.client.create_elicitation(message=safe(message), mode=mode)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the session runs."""
        return not self._turns.locked() and not self.talk.is_working

    @property
    def is_resting(self) -> bool:
        """Whether nothing of it runs, and it could be closed until its next prompt."""
        session = self.talk.session
        return self.is_idle and session is not None and not session.has_children_at_work and session.is_stored_whole

    async def rest(self) -> None:
        """Close what the session holds; its next prompt opens it again."""
        if self.is_resting:
            async with self._turns:
                self.is_awake = False
                await self.talk.close()

    async def _wake(self) -> None:
        if self.talk.session is None and not self._closed:
            self.is_awake = True
            await self.talk.wake(self.id)

    async def close(self) -> None:
        """End the session and all that runs in it."""
        self._closed = True
        await self.cancel()
        self._updates.stop()
        async with self._turns:  # what is being opened has to be open first
            await self.talk.close()

    def later(self, work: Callable[[], None]) -> None:
        """Do something once the answer that is being made has been sent."""
        asyncio.get_running_loop().call_soon(work)


def _parts(content: str | tuple[ContentPart, ...]) -> tuple[ContentPart, ...]:
    return as_words(content) if isinstance(content, str) else content


def _usage(usage: TokenUsage) -> Usage:
    return Usage(
        total_tokens=usage.total_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        thought_tokens=usage.reasoning_output_tokens,
        cached_read_tokens=usage.cached_input_tokens,
        cached_write_tokens=usage.cache_write_input_tokens,
    )
