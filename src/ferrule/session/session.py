"""A conversation with a model that has tools: history, turns, what is stored, what is asked of the user."""

import asyncio
import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from ferrule.dispatch.front_end import FrontEnd
from ferrule.model.lessons import Lesson, latest
from ferrule.model.recipient import mark_of
from ferrule.model.retry import delay_ms
from ferrule.model.stream import Model, ModelError, ModelRequest, ToolChoice
from ferrule.process.run import uninterrupted
from ferrule.protocol.content import ContentPart, InputText, text_of
from ferrule.protocol.dynamic_tools import CALL_TIMEOUT, DynamicToolResponse, DynamicToolSpec
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import (
    ErrorEvent,
    Event,
    ThreadStarted,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WarningEvent,
)
from ferrule.protocol.items import Message, ResponseItem, make_item
from ferrule.protocol.json_text import encodable
from ferrule.protocol.settings import Settings
from ferrule.protocol.specs import ConfiguredToolSpec, ToolSpec
from ferrule.session.history import History, settled
from ferrule.session.hooks import SessionHooks
from ferrule.session.images import MAX_IMAGE_BYTES, bounded, without_marked, without_refused
from ferrule.session.instructions import BASE_INSTRUCTIONS, opening_items, with_examples
from ferrule.session.rollout import (
    ImagesRefused,
    Rollout,
    SessionMeta,
    StoredSession,
    TurnContext,
)
from ferrule.session.tool_choice import ToolChoiceLike, as_tool_choice
from ferrule.session.toolset import Toolset
from ferrule.session.turn import Turn, TurnResult
from ferrule.sync import LoopBound
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, DynamicCallback, Question
from ferrule.tools.tasks import run_blocking

MAX_STOP_BLOCKS = 10
"""How often in a turn Stop hooks may send the model back to work: one that never lets go must not run for ever."""


class PromptBlocked(FerruleError):
    """A hook refused what the user said; nothing was sent."""


Prompt = str | Sequence[ContentPart]
RolloutWrite = Callable[[Rollout], None]


class Session(LoopBound):
    """One conversation. Made by `open_session`; belongs to the loop that uses it first. One turn at a time.

    `rollout` is the file that keeps it; `notes` are texts for the model, read behind the response that goes on, to
    which `hooks` add theirs.
    """

    def __init__(
        self,
        settings: Settings,
        model: Model,
        model_name: str,
        toolset: Toolset,
        *,
        front_end: FrontEnd | None = None,
        rollout: Rollout | None = None,
        stored: StoredSession | None = None,
        hooks: SessionHooks | None = None,
        notes: list[str] | None = None,
    ) -> None:
        self.id = toolset.session_id
        self.settings = settings
        self.model = model
        self.model_name = model_name
        self.toolset = toolset
        self.history = History(_restored(stored, settings, model_name) if stored else ())
        self._lessons = stored.lessons if stored else ()
        toolset.recall(self.history.items)
        self.usage = TokenUsage()
        self.stream_retries = settings.provider.stream_max_retries if settings.provider else 0
        self._front_end = front_end
        self._instructions = with_examples(settings.instructions or BASE_INSTRUCTIONS, toolset.examples)
        self._rollout = rollout
        self._stored = stored
        self._begun = self._started = False
        self._turn: asyncio.Task[TurnResult] | None = None
        self._specs: tuple[list[ConfiguredToolSpec], tuple[ToolSpec, ...]] | None = None
        self._warned_of_rollout = False
        self._notes = [] if notes is None else notes
        self._loaded: list[ConfiguredToolSpec] | None = None
        self._loading: asyncio.Future[None] | None = None
        self._telling: asyncio.Future[None] | None = None
        self.hooks = hooks

    @property
    def observed(self) -> bool:
        """Whether somebody sees the events."""
        return self._front_end is not None

    def emit(self, event: Event | ToolEvent) -> None:
        """Tell the front end, if there is one."""
        if self._front_end is not None:
            self._front_end.on_event(event)

    async def run(self, prompt: Prompt, *, tool_choice: ToolChoiceLike = "auto") -> TurnResult:
        """One turn: the user says `prompt`, the model works until it needs nothing more.

        `tool_choice`: `auto`, `none` (no call in this turn), `required` (at least one), or one tool that must be
        called, as `{"type": "function", "function": {"name": NAME}}`; after a forced call the model is free again.

        Raises `ModelError` where the server fails, `TurnLimit`, and `UsageError` while another turn runs. Interrupted
        by `interrupt`, it returns what there is, marked as aborted. History is whole in every case.
        """
        self.bind_to_running_loop()
        if self._turn is not None:
            raise UsageError("a turn is running already; wait for it or interrupt it")
        turn = Turn(self, secrets.token_hex(8), as_tool_choice(tool_choice))
        self._turn = asyncio.create_task(self._run_turn(turn, prompt))
        try:
            return await asyncio.shield(self._turn)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                await _end(self._turn)
                raise
            return TurnResult(turn.text, turn.usage, turn.id, aborted=True)
        finally:
            self._turn = None

    def interrupt(self) -> bool:
        """End the running turn: its calls are ended, and what they had answered stays. False where no turn runs."""
        return self._turn is not None and self._turn.cancel()

    async def _run_turn(self, turn: Turn, prompt: Prompt) -> TurnResult:
        try:
            await self._begin(turn, prompt)
            result = await turn.run()
        except asyncio.CancelledError:
            self.toolset.pending.withdraw_all("the turn was interrupted")
            self._note("turn_aborted")
            self.emit(TurnAborted(turn_id=turn.id))
            raise
        except Exception as error:
            words = encodable(str(error) if isinstance(error, FerruleError) else f"internal error: {error!r}")
            self._note("error", words)
            self.emit(ErrorEvent(message=words))
            self.emit(TurnFailed(turn_id=turn.id, message=words))
            raise
        finally:
            self.usage += turn.usage
        self.emit(TurnCompleted(turn_id=turn.id, usage=result.usage, last_message=result.text))
        return result

    async def _begin(self, turn: Turn, prompt: Prompt) -> None:
        state = self.toolset.conversation
        if not self._begun:
            self._begun = True
            self.emit(ThreadStarted(thread_id=self.id, model=self.model_name))
            if self.observed:
                self._telling = asyncio.ensure_future(self._tell_sandbox())
            if self._stored is not None and self._stored.damage:
                self.emit(WarningEvent(message=self._stored.damage))
            if self._stored is None:
                self._write_meta()
                for item in opening_items(state, lambda text: self.emit(WarningEvent(message=text))):
                    self.record(item)
        self.emit(TurnStarted(turn_id=turn.id))
        if self._rollout is not None:
            permissions = state.permissions
            context = TurnContext(
                cwd=state.cwd,
                approval_policy=permissions.approval_policy,
                sandbox_policy=permissions.sandbox_policy,
                model=self.model_name,
                profile=self.settings.profile,
            )
            self._write(lambda rollout: rollout.turn_context(context))
        content = (InputText(encodable(prompt)),) if isinstance(prompt, str) else tuple(prompt)
        await self._hooks_at_start(text_of(content))
        self.record(make_item(Message(role="user", content=content)))
        self.record_context()

    async def _hooks_at_start(self, prompt: str) -> None:
        """SessionStart once, then UserPromptSubmit, which may refuse the prompt. Raises `PromptBlocked`."""
        if self.hooks is None:
            return
        if not self._started:
            self._started = True
            await self.hooks.ask("SessionStart", source="resume" if self._stored else "startup")
        for answer in await self.hooks.ask("UserPromptSubmit", prompt=prompt):
            reason = answer.block_reason or (None if answer.continue_ else answer.stop_reason or "a hook stopped it")
            if reason is not None:
                raise PromptBlocked(f"the prompt was blocked by a hook: {reason}")

    async def hooks_at_stop(self, last_message: str, times: int) -> str | None:
        """Stop: a hook may send the model back to work, for the `times`-th time; what it is told, or None."""
        if self.hooks is None or times >= MAX_STOP_BLOCKS:
            return None
        answers = await self.hooks.ask("Stop", last_assistant_message=last_message, stop_hook_active=times > 0)
        return "\n".join(reason for answer in answers if (reason := answer.block_reason)) or None

    def record_context(self) -> None:
        """Put what hooks added for the model into history."""
        notes, self._notes[:] = list(self._notes), []
        for text in notes:
            self.record(make_item(Message(role="developer", content=(InputText(text),))))

    def tell_model(self, text: str) -> None:
        """Let the model read this behind the response that goes on."""
        self._notes.append(text)

    def say(self, text: str) -> None:
        """Put words of the user into history."""
        self.record(make_item(Message(role="user", content=(InputText(text),))))

    def request(
        self, specs: list[ConfiguredToolSpec], interrupted_calls: set[str], tool_choice: ToolChoice
    ) -> ModelRequest:
        """The next request to the model."""
        history, stored = self.history, self.history.stored
        if self._specs is None or self._specs[0] is not specs:
            self._specs = (specs, tuple(entry.spec for entry in specs))
        items = bounded(history.items) if history.weight > MAX_IMAGE_BYTES else history.items
        return ModelRequest(
            model=self.model_name,
            instructions=self._instructions,
            items=items,
            lineage=history.lineage if items is history.items else None,
            tools=self._specs[1],
            tool_choice=tool_choice,
            settings=self.settings.model,
            output_schema=self.settings.output_schema,
            session_id=self.id,
            previous_response_id=stored.response_id if stored else None,
            stored_items=stored.items if stored else 0,
            on_sent=None if self._loaded is specs else self._load_tools,
            interrupted_calls=frozenset(interrupted_calls),
            lessons=self._lessons,
        )

    def leave_out_refused(self) -> bool:
        """Go on without the images that the server has refused. Returns whether there were any."""
        before, items = self.history.items, without_refused(self.history.items)
        if items is None:
            return False
        self.history.replace(items)
        marks = {mark_of(one.raw) for one, other in zip(before, items, strict=True) if one is not other}
        refused = ImagesRefused(_provider_of(self.settings), self.model_name, frozenset(marks))
        self._write(lambda rollout: rollout.images_refused(refused))
        return True

    def learn(self, lesson: Lesson) -> None:
        """Keep what the server refuses, for the requests of this session's later lives."""
        self._lessons = latest((*self._lessons, lesson))
        self._write(lambda rollout: rollout.lesson(lesson))

    def record(self, item: ResponseItem) -> None:
        """Put an item into history and on disk."""
        self.history.append(item)
        self.store(item)

    def store(self, item: ResponseItem) -> None:
        """Put an item on disk; its place in history comes later."""
        if self._rollout is not None:
            self._write(lambda rollout: rollout.item(item))

    def end_response(self, usage: TokenUsage | None) -> None:
        """A response of the model is complete, with its calls."""
        if self._rollout is not None:
            self._write(lambda rollout: rollout.response_end(usage))

    def retry_delay(self, attempt: int, error: ModelError) -> float:
        """Seconds before the model is asked again after a broken stream."""
        return delay_ms(attempt, error.retry_after_ms, random.random()) / 1000

    async def _tell_sandbox(self) -> None:
        for warning in self.toolset.warnings:
            self.emit(WarningEvent(message=warning))
        if self.toolset.runs_commands:
            self.emit(await self.toolset.workspace.status())

    def _load_tools(self) -> None:
        """The model thinks now: time to import what its calls will need."""
        specs, registry = self.toolset.current()
        self._loaded = specs
        self._loading = asyncio.ensure_future(run_blocking(registry.load_all))

    def pending_approvals(self) -> list[Question]:
        """The questions that wait for an answer, oldest first."""
        return self.toolset.pending.questions()

    def decide(self, request_id: str, answer: Answer) -> None:
        """Answer a question. Raises `UsageError` when it does not wait (any more)."""
        self.toolset.pending.decide(request_id, answer)

    def add_dynamic_tools(
        self,
        specs: Iterable[DynamicToolSpec],
        callback: DynamicCallback | None = None,
        *,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """See `Toolset.add_dynamic_tools`."""
        self.toolset.add_dynamic_tools(specs, callback, timeout=timeout)

    def answer_dynamic_tool(self, call_id: str, response: DynamicToolResponse) -> None:
        """Answer a `DynamicToolCallRequest`. Raises `UsageError` when it does not wait (any more)."""
        self.toolset.answer_dynamic_tool(call_id, response)

    async def aclose(self) -> None:
        """End the turn, the children, the tools and the connections; each, even if another one fails to end."""
        async with AsyncExitStack() as ends:
            if self._rollout is not None:
                ends.callback(self._rollout.close)
            ends.push_async_callback(self.model.aclose)
            ends.push_async_callback(self.toolset.aclose)
            if self._turn is not None:
                await _end(self._turn)
            if self._telling is not None:
                self._telling.cancel()
            background = [task for task in (self._loading, self._telling) if task is not None]
            if background:
                await asyncio.wait(background)

    def _write_meta(self) -> None:
        meta = SessionMeta(
            id=self.id,
            timestamp=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            cwd=self.toolset.conversation.cwd,
            model_provider=_provider_of(self.settings),
            instructions=self.settings.instructions,
        )
        self._write(lambda rollout: rollout.meta(meta))

    def _note(self, name: str, message: str = "") -> None:
        if self._rollout is not None:
            self._write(lambda rollout: rollout.event(name, message))

    def _write(self, write: RolloutWrite) -> None:
        """A session goes on without its file; the user is told once."""
        if self._rollout is None:
            return
        try:
            write(self._rollout)
        except OSError as error:
            if not self._warned_of_rollout:
                self._warned_of_rollout = True
                self.emit(
                    WarningEvent(message=f"the session cannot be saved in {self._rollout.path}: {error.strerror}")
                )


async def _end(turn: "asyncio.Task[TurnResult]") -> None:
    """Cancel a turn and wait for its end, however often the waiting is cancelled: history is whole only then."""
    turn.cancel()
    await uninterrupted(_ended(turn))


async def _ended(turn: "asyncio.Task[TurnResult]") -> None:
    await asyncio.wait([turn])


def _provider_of(settings: Settings) -> str:
    return settings.provider.name if settings.provider else ""


def _restored(stored: StoredSession, settings: Settings, model_name: str) -> list[ResponseItem]:
    """The items of a stored session, without the images that this server has refused."""
    who = (_provider_of(settings), model_name)
    marks = {mark for refused in stored.refused if (refused.provider, refused.model) == who for mark in refused.items}
    return without_marked(settled(stored.responses), marks)
