"""One conversation: run a turn, interrupt it, answer questions, close everything."""

import asyncio
import os
import secrets
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ferrule.protocol.content import ContentPart, InputText, text_of
from ferrule.protocol.dynamic_tools import CALL_TIMEOUT, DynamicToolResponse, DynamicToolSpec
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import (
    ErrorEvent,
    ThreadStarted,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    UndoCompleted,
    WarningEvent,
)
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.json_text import encodable
from ferrule.protocol.settings import ReasoningEffort
from ferrule.session.bounds import TurnTimeout, within
from ferrule.session.children import Child
from ferrule.session.compaction import Compacted, Compactor
from ferrule.session.dialogue import Dialogue
from ferrule.session.images import image_input
from ferrule.session.instructions import changed_environment, opening_items
from ferrule.session.lines import StoredProvider, TurnContext
from ferrule.session.loading import ToolLoading
from ferrule.session.result import TurnResult
from ferrule.session.stream import EventStream
from ferrule.session.tool_choice import ToolChoiceLike, as_tool_choice
from ferrule.session.turn import Turn
from ferrule.session.turn_hooks import TurnHooks
from ferrule.session.undo import Undoing, undo_message
from ferrule.sync import LoopBound, wait_for_coroutine
from ferrule.tools.answering import Listener
from ferrule.tools.children import ChildOrder
from ferrule.tools.questions import Answer, DynamicCallback, Question, Waiting
from ferrule.tools.tasks import end_tasks

SCRIPT_SHOWN = 80
"""Characters shown of a script that was ended; enough to recognise it."""

Prompt = str | Sequence[ContentPart]
T = TypeVar("T")
ImageLike = str | bytes | os.PathLike[str]
"""An image for a prompt: a path, the image's bytes, or a URL."""


class Session(LoopBound):
    """One conversation. Made by `open_session`; belongs to the first loop that uses it. Runs one turn at a time."""

    def __init__(
        self, dialogue: Dialogue, hooks: TurnHooks, undoing: Undoing | None = None, *, owns_model: bool = True
    ) -> None:
        self.id = dialogue.toolset.session_id
        self.settings = dialogue.settings
        self.model = dialogue.model
        self.model_name = dialogue.model_name
        self.toolset = dialogue.toolset
        self.history = dialogue.history
        self.usage = TokenUsage()
        self._dialogue = dialogue
        self._hooks = hooks
        self._undoing = undoing
        self._owns_model = owns_model
        self._loading = ToolLoading(dialogue.toolset)
        self._compactor = Compactor(dialogue, hooks, self._opening)
        self._begun = False
        self._turn: asyncio.Task[Any] | None = None
        self._current: Turn | None = None
        self._telling: asyncio.Future[None] | None = None
        self._sandbox_told = False

    async def run(
        self, prompt: Prompt, *, images: Sequence[ImageLike] = (), tool_choice: ToolChoiceLike = "auto"
    ) -> TurnResult:
        """Run one turn: the user says `prompt`, the model works until it is done.

        `images` go with the prompt: files, bytes or URLs.

        `tool_choice`: `auto`, `none` (no call in this turn), `required` (at least one), or one tool that must be
        called, as `{"type": "function", "function": {"name": NAME}}`. After a forced call the model is free again.

        Raises `ModelError` if the server fails, `TurnLimit`, and `UsageError` while another turn runs. After
        `interrupt` it returns what there is, marked as aborted. History stays complete in every case.
        """
        self._be_idle()
        if images:
            text = (InputText(prompt),) if isinstance(prompt, str) else tuple(prompt)
            prompt = (*map(image_input, images), *text)
        turn = Turn(
            self._dialogue,
            secrets.token_hex(8),
            as_tool_choice(tool_choice),
            hooks=self._hooks,
            loading=self._loading,
            compactor=self._compactor,
            interrupt=self.interrupt,
        )
        self._current = turn
        spans, work = self._dialogue.spans, partial(self._run_turn, turn, prompt)
        result = await self._work(work() if spans is None else spans.turn(turn, work))
        return turn.result(aborted=True) if result is None else result

    async def compact(self) -> Compacted | None:
        """Replace the conversation so far by a summary, as it is done when it nearly fills the model's window.

        The user's newest words, the plan and AGENTS.md stay. Returns the tokens before and after; None where it was
        interrupted. Raises `CompactionFailed`, and `UsageError` where a turn runs or nothing was said yet.
        """
        self._be_idle()
        if not self._compactor.can_shrink:
            raise UsageError("there is nothing to compact yet: the model has not said anything")
        return await self._work(self._run_compaction())

    async def _run_compaction(self) -> Compacted:
        try:
            return await self._compactor.compact("manual", "", lambda done: None)
        finally:
            self.usage += self._compactor.new_usage()

    async def undo(self) -> UndoCompleted | None:
        """Take back what the last turn changed that changed anything: its edits and, with `snapshots = true`, what its
        commands did in the workspace. Again: what the turn before changed.

        A file that was changed since is left alone and named with the reason; the others are taken back. The model
        reads of it before its next answer. None where it was interrupted; it is whole all the same. Raises `UsageError`
        where a turn runs, a sub-agent works, or there is nothing to take back.
        """
        self._be_idle()
        if self._undoing is None:
            raise UsageError("what a sub-agent changes belongs to its parent's turn; take that one back")
        if self.has_children_at_work:
            raise UsageError("sub-agents are still at work; wait for them or interrupt them")
        return await self._work(self._undoing.undo(self._heed_undo))

    def undo_sync(self) -> UndoCompleted | None:
        """`undo`, for plain code."""
        return wait_for_coroutine(self.undo())

    def _heed_undo(self, done: UndoCompleted) -> None:
        """Tell the model, by a message that comes before the user's next words, and the front end."""
        if done.restored:
            self._dialogue.say(undo_message(done))
        self._dialogue.emit(done)

    def _be_idle(self) -> None:
        """Raise `UsageError` where something runs."""
        self.bind_to_running_loop()
        if self._turn is not None:
            raise UsageError("a turn is running already; wait for it or interrupt it")

    async def _work(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do the one thing that the session does at a time; None if it was interrupted."""
        self._turn = running = asyncio.create_task(work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                await end_tasks([running])
                raise
            return None
        finally:
            self._turn = None

    def stream(
        self, prompt: Prompt, *, images: Sequence[ImageLike] = (), tool_choice: ToolChoiceLike = "auto"
    ) -> EventStream:
        """Run a turn and iterate over its events: `async for event in session.stream(prompt)`. See `run`."""

        async def run(listener: Listener) -> TurnResult:
            with self.toolset.host.listening(listener):
                return await self.run(prompt, images=images, tool_choice=tool_choice)

        return EventStream(run)

    async def spawn(
        self,
        prompt: Prompt,
        *,
        role: str | None = None,
        instructions: str | None = None,
        model: str | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        fork: bool = False,
    ) -> Child:
        """Start a sub-agent that works on `prompt` beside this session, as the tool `spawn_agent` does.

        `role` is one of the settings' `agents`; `fork`: it begins with the conversation so far. Raises
        `RespondToModel` where the role is unknown, too many run, or agents are nested too deeply.
        """
        self.bind_to_running_loop()
        order = ChildOrder(
            content=_content(prompt),
            role=role,
            instructions=instructions,
            model=model,
            reasoning_effort=reasoning_effort,
            fork=fork,
        )
        return await self._dialogue.children.start(order)

    def steer(self, prompt: Prompt) -> None:
        """Say something while a turn runs: the model reads it before its next answer, and the turn goes on for it.

        Raises `UsageError` where no turn runs. If the turn is interrupted before, the next one begins with it.
        """
        if self._turn is None:
            raise UsageError("no turn is running; say it by run")
        self._dialogue.steer(_content(prompt))

    def unread(self) -> tuple[ContentPart, ...]:
        """Take what was said by `steer` and the model has not read."""
        return tuple(part for content in iter(self._dialogue.next_steered, None) for part in content)

    @property
    def is_running(self) -> bool:
        """Whether a turn runs, or a compaction."""
        return self._turn is not None

    @property
    def window(self) -> int | None:
        """Tokens that a request may have; None if nobody said it."""
        return self._compactor.window

    @property
    def has_children_at_work(self) -> bool:
        """Whether a sub-agent works, perhaps beyond the turn that started it."""
        return any(not child.status.is_final for child in self._dialogue.children.infos())

    @property
    def path(self) -> Path | None:
        """The session's file, which is made with its first turn; None if it is not stored."""
        return self._dialogue.record.path

    @property
    def is_stored_whole(self) -> bool:
        """Whether all that was said stands in the session's file, if it has one: a full disk may have prevented it."""
        return self._dialogue.record.is_whole

    @property
    def spent(self) -> TokenUsage:
        """The tokens so far, with those of the running turn."""
        return self.usage if self._current is None else self.usage + self._current.usage

    @property
    def cost(self) -> float | None:
        """What the session has cost so far; None without prices."""
        return self._dialogue.budget.cost

    def interrupt(self) -> bool:
        """End the running turn and its calls; answers that have arrived stay. Return False if no turn runs."""
        self._dialogue.children.interrupt()
        return self._turn is not None and self._turn.cancel()

    async def _run_turn(self, turn: Turn, prompt: Prompt) -> TurnResult:
        emit, record = self._dialogue.emit, self._dialogue.record
        try:
            try:
                result = await self._within_time(turn, prompt)
            finally:
                if self._undoing is not None:
                    await self._undoing.end()
                await self._dialogue.check.settled()
        except asyncio.CancelledError:
            self._dialogue.children.interrupt()
            self.toolset.pending.withdraw_all("the turn was interrupted")
            record.note("turn_aborted")
            emit(TurnAborted(turn_id=turn.id))
            raise
        except Exception as error:
            if isinstance(error, TurnTimeout):
                self._dialogue.children.interrupt()
            words = encodable(str(error) if isinstance(error, FerruleError) else f"internal error: {error!r}")
            record.note("error", words)
            emit(ErrorEvent(message=words))
            emit(TurnFailed(turn_id=turn.id, message=words))
            raise
        finally:
            turn.usage += self._compactor.new_usage() + self._dialogue.children.new_usage()
            self.usage += turn.usage
            self._current = None
        result = msgspec.structs.replace(result, usage=turn.usage, cost=self._dialogue.budget.cost_of(turn.usage))
        emit(TurnCompleted(turn_id=turn.id, usage=result.usage, last_message=result.text, cost=result.cost))
        return result

    async def _within_time(self, turn: Turn, prompt: Prompt) -> TurnResult:
        try:
            async with within(self.settings.turn_timeout, TurnTimeout, "turn"):
                await self._begin(turn, prompt)
                return await turn.run()
        finally:
            if self._telling is not None:
                self._telling.cancel()  # the turn's own end is its last event

    async def _begin(self, turn: Turn, prompt: Prompt) -> None:
        dialogue, permissions = self._dialogue, self.toolset.conversation.permissions
        if not self._begun:
            self._begun = True
            self._open()
        dialogue.emit(TurnStarted(turn_id=turn.id))
        if self._undoing is not None:
            await self._undoing.begin(turn.id)
        if dialogue.observed and not self._sandbox_told:
            self._telling = asyncio.ensure_future(self._tell_sandbox())
        context = TurnContext(
            cwd=self.toolset.conversation.cwd,
            approval_policy=permissions.approval_policy,
            sandbox_policy=permissions.sandbox_policy,
            model=self.model_name,
            profile=self.settings.profile,
            provider=None if self.settings.provider is None else StoredProvider.of(self.settings.provider),
            tools=self.settings.tools,
            turn_id=turn.id,
        )
        dialogue.record.turn(context)
        content = _content(prompt)
        await self._hooks.at_start(text_of(content))
        dialogue.hear(content)
        dialogue.budget.begin_turn()
        if (told := dialogue.allowance.begin_turn()) is not None:
            dialogue.tell_model(told)
        dialogue.add_notes()

    def _open(self) -> None:
        """Announce the session to its listeners; begin its history unless it is resumed."""
        dialogue, state = self._dialogue, self.toolset.conversation
        dialogue.emit(ThreadStarted(thread_id=self.id, model=self.model_name, cwd=state.cwd))
        for warning in self.toolset.warnings:
            dialogue.emit(WarningEvent(message=warning))
        if dialogue.stored is None:
            came_from = dialogue.parentage
            dialogue.record.begin(self.id, state.cwd, self.settings, came_from)
            if came_from.history:
                dialogue.replace_history(came_from.history, "", TokenUsage())
                self.toolset.recall(came_from.history)
            for item in () if came_from.history else self._opening():
                dialogue.add(item)
            dialogue.guidance.recall(dialogue.history.items)
        elif dialogue.stored.damage:
            dialogue.emit(WarningEvent(message=dialogue.stored.damage))
        if (changed := changed_environment(state, dialogue.history.items)) is not None:
            dialogue.add(changed)

    def _opening(self) -> Iterator[ResponseItem]:
        return opening_items(self.toolset.conversation, self._dialogue.guidance, self._dialogue.skills)

    async def _tell_sandbox(self) -> None:
        if self.toolset.runs_commands:
            self._dialogue.emit(await self.toolset.workspace.status())
        self._sandbox_told = True

    async def settle_commands(self, seconds: float = 0.0) -> None:
        """Wait up to `seconds` for the commands that still run, then end the others, with a warning that names them.

        Without it they go on from turn to turn, until the session is closed.
        """
        ended = await self.toolset.conversation.commands.settle(seconds)
        if ended:
            scripts = "; ".join(" ".join(script.split())[:SCRIPT_SHOWN] for script in ended)
            self._dialogue.emit(WarningEvent(message=f"commands that still ran were ended with the run: {scripts}"))

    def opening_tokens(self) -> int:
        """Return the approximate tokens of each request's instructions and tools."""
        return self._dialogue.fixed_tokens()

    def pending_approvals(self) -> list[Question]:
        """Return the questions that wait for an answer, oldest first."""
        return self.toolset.pending.questions()

    def is_waiting(self, question: Waiting) -> bool:
        """Return whether a question, or a call of a client's tool, still waits for its answer."""
        return self.toolset.pending.is_waiting(question.request_id)

    def decide(self, request_id: str, answer: Answer) -> None:
        """Answer a question. Raises `UsageError` if it does not wait, or no longer."""
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
        """Answer a `DynamicToolCallRequest`. Raises `UsageError` if it does not wait, or no longer."""
        self.toolset.answer_dynamic_tool(call_id, response)

    async def aclose(self) -> None:
        """End the turn, its processes, the tools and the connections, even if one of them fails to end."""
        async with AsyncExitStack() as ends:
            ends.callback(self._dialogue.record.close)
            if self._undoing is not None:
                ends.callback(self._undoing.close)
            if self._owns_model:
                ends.push_async_callback(self.model.aclose)
            ends.push_async_callback(self._dialogue.check.aclose)
            ends.push_async_callback(self.toolset.aclose)
            ends.callback(self._count_children)
            ends.push_async_callback(self._dialogue.children.aclose)
            if self._turn is not None:
                await end_tasks([self._turn])
            if self._telling is not None:
                self._telling.cancel()
                await asyncio.wait([self._telling])
            await self._loading.end()

    def _count_children(self) -> None:
        self.usage += self._dialogue.children.new_usage()


def _content(prompt: Prompt) -> tuple[ContentPart, ...]:
    return (InputText(encodable(prompt)),) if isinstance(prompt, str) else tuple(prompt)
