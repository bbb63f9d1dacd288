"""From the events of one session to the notifications of one thread."""

import codecs
import os
import shlex
import time
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from ferrule.doors.app_server import forms
from ferrule.doors.app_server.making import (
    as_words,
    begun_item,
    command_item,
    ended_item,
    failed_item,
    item_of_words,
    now_ms,
    untold_item,
)
from ferrule.doors.app_server.shapes import told
from ferrule.doors.app_server.shapes.common import ThreadTokenUsage, TurnError, UserInput
from ferrule.doors.app_server.shapes.items import (
    AgentMessage,
    CommandExecution,
    ContextCompaction,
    FileChange,
    ImageView,
    Reasoning,
    ThreadItem,
    UserMessage,
)
from ferrule.doors.app_server.shapes.threads import Active, ActiveFlag, Failed, Idle, Turn, TurnStatus
from ferrule.doors.app_server.shapes.told import Told
from ferrule.history.pairs import called_id
from ferrule.model.calls import random_id
from ferrule.protocol.events import (
    ContextCompacted,
    ErrorEvent,
    Event,
    ExecApproval,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpServerStatus,
    McpToolCallEnd,
    McpToolCallProgress,
    NetworkRefused,
    PatchApplyBegin,
    PatchApplyEnd,
    PatchApplyProgress,
    PlanUpdate,
    SandboxStatus,
    TerminalInteraction,
    TokenCount,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnDiff,
    TurnFailed,
    TurnStarted,
    ViewImage,
    WarningEvent,
)
from ferrule.protocol.items import Message as SaidMessage
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.payload import ToolOutput
from ferrule.rendering.calls import (
    Call,
    CommandCall,
    read_call,
)
from ferrule.tools.events import ToolEvent

_SERVER_STATES: dict[str, Literal["starting", "ready", "failed", "cancelled"]] = {
    "starting": "starting", "waiting": "starting", "ready": "ready", "failed": "failed", "stopped": "cancelled",
}  # fmt: skip


class Sink(Protocol):
    """Where notifications go. What is `offered` is left out for a client that has enough to read."""

    def tell(self, params: Told) -> None: ...
    def offer(self, params: Told) -> None: ...


class _Open(msgspec.Struct):
    """A call that has not ended. `item` is what was told of it; `runs`: its command or patch has begun."""

    call: Call | None
    item: ThreadItem | None = None
    turn_id: str = ""
    runs: bool = False
    answer: McpToolCallEnd | None = None


class Translation:
    """Tells a client what happens in a session. `usage` are the session's tokens before the running turn."""

    def __init__(self, thread_id: str, sink: Sink, cwd: str, window: int | None = None) -> None:
        self.thread_id = thread_id
        self.cwd = cwd
        self.window = window
        self.turn: Turn | None = None
        """The running turn."""
        self.said: tuple[UserInput, ...] = ()
        """What the next turn begins with."""
        self.client_id: str | None = None
        self.on_started: Callable[[Turn], None] = lambda turn: None
        self.usage = TokenUsage()
        self._sink = sink
        self._counted = TokenUsage()
        self._open: dict[str, _Open] = {}
        self._texts: dict[str, AgentMessage | Reasoning] = {}
        self._decoders: dict[tuple[str, str], codecs.IncrementalDecoder] = {}
        self._processes: dict[int, str] = {}
        self._last: AgentMessage | None = None
        self._error: TurnError | None = None
        self._began = 0.0
        self._begun: dict[str, int] = {}

    @property
    def turn_id(self) -> str:
        """The running turn's id; empty without one."""
        return self.turn.id if self.turn is not None else ""

    def take(self, event: Event | ToolEvent) -> None:
        """Tell of an event."""
        match event:
            case ItemUpdated():
                self._grow(event)
            case ItemStarted(item=item):
                self._start(item)
            case ItemCompleted(item=item, output=None):
                self._say(item)
            case ItemCompleted(item=item, output=ToolOutput() as output):
                self._finish(item, output, event.duration_ms)
            case TurnStarted(turn_id=turn_id):
                self.begin_turn(turn_id)
            case TurnCompleted():
                self.end_turn("completed")
            case TurnAborted():
                self.end_turn("interrupted")
            case TurnFailed(message=message):
                self._error = self._error or TurnError(message=message, codex_error_info="other")
                self.end_turn("failed")
            case ErrorEvent(message=message):
                self._error = TurnError(message=message, codex_error_info="other")
                self._sink.tell(told.StatusChanged(thread_id=self.thread_id, status=Failed()))
                self._tell(told.ErrorTold, error=self._error)
            case WarningEvent(message=message) | NetworkRefused(reason=message):
                self._warn(message)
            case _:
                self._follow(event)

    def _follow(self, event: Event | ToolEvent) -> None:
        """Tell what a call does, and of the session."""
        match event:
            case ExecApproval():
                self._ask(event)
            case ExecCommandBegin() | ExecCommandOutputDelta() | ExecCommandEnd() | TerminalInteraction():
                self._command(event)
            case PatchApplyBegin() | PatchApplyProgress() | PatchApplyEnd():
                self._patch(event)
            case TurnDiff(unified_diff=diff):
                self._tell(told.DiffUpdated, diff=diff)
            case PlanUpdate():
                self._plan(event)
            case TokenCount(usage=usage):
                self._count(usage)
            case ContextCompacted():
                self._whole(ContextCompaction(id=random_id()))
            case ViewImage(call_id=call_id, path=path):
                self._whole(ImageView(id=call_id, path=os.path.join(self.cwd, path)))
            case McpToolCallProgress(call_id=call_id):
                words = event.message or f"{event.progress:g}" + (f" of {event.total:g}" if event.total else "")
                self._offer(told.McpProgress, item_id=call_id, message=words)
            case McpToolCallEnd(call_id=call_id) if call_id in self._open:
                self._open[call_id].answer = event
            case McpServerStatus(server=server, status=status, message=message):
                state = _SERVER_STATES.get(status, "starting")
                error = message if state == "failed" else None
                self._sink.tell(told.McpStatus(name=server, status=state, error=error, thread_id=self.thread_id))
            case SandboxStatus(problem=str(problem)):
                self._warn(problem)

    # Turns

    def begin_turn(self, turn_id: str) -> None:
        """Tell that a turn runs, and what the user said."""
        self._began = time.time()
        self.turn = Turn(id=turn_id, root_turn_id=turn_id, status="inProgress", started_at=int(self._began))
        self._counted, self._last, self._error = TokenUsage(), None, None
        self.on_started(self.turn)
        self.status()
        self._sink.tell(told.TurnStarted(thread_id=self.thread_id, turn=self.turn))
        self.hear(self.said, self.client_id)
        self.said, self.client_id = (), None

    def hear(self, said: tuple[UserInput, ...], client_id: str | None = None) -> None:
        """Tell what the user said."""
        if said:
            self._whole(UserMessage(id=random_id(), content=said, client_id=client_id))

    def fail(self, message: str) -> None:
        """Tell what the turn failed with, and its end."""
        self.take(ErrorEvent(message=message))
        self.end_turn("failed")

    def end_turn(self, status: TurnStatus) -> None:
        """Tell that the turn has ended; what has not, is told to have failed, but for commands that go on."""
        if self.turn is None:
            return
        for call_id in [name for name, one in self._open.items() if not self._goes_on(one)]:
            one = self._open.pop(call_id)
            if one.item is not None:
                self._complete(failed_item(one.item), one.turn_id)
        for item in self._texts.values():
            self._complete(item)
        self._texts.clear()
        now = time.time()
        ended = msgspec.structs.replace(
            self.turn,
            status=status,
            items=() if self._last is None else (self._last,),
            items_view="notLoaded" if self._last is None else "summary",
            error=self._error if status == "failed" else None,
            completed_at=int(now),
            duration_ms=int((now - self._began) * 1000),
        )
        self.usage += self._counted
        self.turn = None
        if status != "failed":
            self.status()
        self._sink.tell(told.TurnCompleted(thread_id=self.thread_id, turn=ended))

    def status(self, flags: tuple[ActiveFlag, ...] = ()) -> None:
        """Tell how the thread is, and what it waits for."""
        state = Active(active_flags=flags) if self.turn is not None or flags else Idle()
        self._sink.tell(told.StatusChanged(thread_id=self.thread_id, status=state))

    def _goes_on(self, one: _Open) -> bool:
        return one.runs and isinstance(one.item, CommandExecution)

    def _count(self, usage: TokenUsage) -> None:
        total, last = self.usage + usage, usage - self._counted
        self._counted = usage
        shape = ThreadTokenUsage(total=forms.tokens(total), last=forms.tokens(last), model_context_window=self.window)
        self._tell(told.TokenUsageUpdated, token_usage=shape)

    # What the model says

    def _grow(self, event: ItemUpdated) -> None:
        if event.kind == "input":
            return
        if event.item_id not in self._texts:
            made = AgentMessage(id=event.item_id, text="") if event.kind == "text" else Reasoning(id=event.item_id)
            self._texts[event.item_id] = made
            self._begin(made)
            if event.summary:
                self._tell(told.SummaryPartAdded, item_id=event.item_id)
        kind = told.MessageDelta if event.kind == "text" else told.ReasoningDelta
        self._tell(told.SummaryDelta if event.summary else kind, item_id=event.item_id, delta=event.delta)

    def _say(self, item: ResponseItem) -> None:
        """Tell of an item that is complete on arrival."""
        view = item.view
        kind = AgentMessage if isinstance(view, SaidMessage) else Reasoning
        item_id = self._id_of(kind, getattr(view, "id", None))
        made = item_of_words(item, item_id) or (self._texts.get(item_id) if kind is Reasoning else None)
        if isinstance(made, AgentMessage):
            self._last = made
        if isinstance(made, AgentMessage | Reasoning):
            self._close_text(made)
        elif made is not None:
            self._whole(made)

    def _id_of(self, kind: type[AgentMessage | Reasoning], known: str | None) -> str:
        """Return under which id an item that is complete was begun; its own, or a new one, if it was not."""
        if known in self._texts:
            return known or ""
        begun = next((name for name, one in self._texts.items() if isinstance(one, kind)), None)
        return begun or known or random_id()

    def _close_text(self, item: AgentMessage | Reasoning) -> None:
        if self._texts.pop(item.id, None) is None:
            begun = AgentMessage(id=item.id, text="") if isinstance(item, AgentMessage) else Reasoning(id=item.id)
            self._begin(begun)
        self._complete(item)

    def _plan(self, event: PlanUpdate) -> None:
        statuses: dict[str, Literal["pending", "inProgress", "completed"]] = {
            "in_progress": "inProgress", "completed": "completed",
        }  # fmt: skip
        steps = tuple(told.PlanStep(step=one.step, status=statuses.get(one.status, "pending")) for one in event.plan)
        self._tell(told.PlanUpdated, plan=steps, explanation=event.explanation)

    # What the model calls

    def _start(self, item: ResponseItem) -> None:
        call, call_id = read_call(item.view), called_id(item.view)
        if call_id is None:
            return
        one = self._open[call_id] = _Open(call, begun_item(call_id, call, item), turn_id=self.turn_id)
        if one.item is not None:
            self._begin(one.item)

    def _ask(self, question: ExecApproval) -> None:
        """Show what is asked about, as the item that it will be."""
        one = self._open.get(question.call_id)
        if one is None or one.item is not None:
            return
        if question.kind == "command":
            script = question.text
            one.item = command_item(question.call_id, as_words(script), question.cwd or self.cwd, script=script)
        elif question.kind == "patch":
            one.item = self._changes(question.call_id, question.changes, question.cwd)
        if one.item is not None:
            self._begin(one.item)

    def _command(self, event: ExecCommandBegin | ExecCommandOutputDelta | ExecCommandEnd | TerminalInteraction) -> None:
        one = self._open.get(event.call_id)
        match event:
            case ExecCommandBegin(call_id=call_id):
                one = self._open.setdefault(call_id, _Open(None, turn_id=self.turn_id))
                begun = one.item is not None
                number = event.process_id
                script = one.call.text if isinstance(one.call, CommandCall) else None
                one.item = command_item(call_id, shlex.join(event.command), event.cwd, number, script)
                one.runs = True
                if number is not None:
                    self._processes[number] = call_id
                if not begun:
                    self._begin(one.item)
            case ExecCommandOutputDelta(call_id=call_id, stream=stream, chunk=chunk) if one is not None:
                known = self._decoders.get((call_id, stream))
                decoder = known or codecs.getincrementaldecoder("utf-8")("replace")
                self._decoders[call_id, stream] = decoder
                if text := decoder.decode(chunk):
                    self._offer(told.OutputDelta, item_id=call_id, delta=text)
            case ExecCommandEnd(call_id=call_id) if one is not None and isinstance(one.item, CommandExecution):
                del self._open[call_id]
                for stream in ("stdout", "stderr"):
                    self._decoders.pop((call_id, stream), None)
                ended = msgspec.structs.replace(
                    one.item,
                    status="failed" if event.exit_code else "completed",
                    aggregated_output=event.output,
                    exit_code=event.exit_code,
                    duration_ms=event.duration_ms,
                )
                self._complete(ended, one.turn_id)
            case TerminalInteraction(process_id=number, stdin=stdin):
                item_id = self._processes.get(number, event.call_id)
                self._tell(told.TerminalInteraction, item_id=item_id, process_id=str(number), stdin=stdin)

    def _patch(self, event: PatchApplyBegin | PatchApplyProgress | PatchApplyEnd) -> None:
        one = self._open.setdefault(event.call_id, _Open(None, turn_id=self.turn_id))
        match event:
            case PatchApplyProgress(call_id=call_id, changes=changes):
                shapes = tuple(forms.change_shape(change, self.cwd) for change in changes)
                self._offer(told.PatchUpdated, item_id=call_id, changes=shapes)
            case PatchApplyBegin(call_id=call_id, changes=changes, cwd=cwd):
                begun, one.runs = one.item is not None, True
                one.item = self._changes(call_id, changes, cwd)
                if not begun:
                    self._begin(one.item)
            case PatchApplyEnd(success=success) if isinstance(one.item, FileChange):
                one.item = msgspec.structs.replace(one.item, status="completed" if success else "failed")
                self._complete(one.item, one.turn_id)
                one.item = None

    def _changes(self, call_id: str, changes: tuple[object, ...], cwd: str | None) -> FileChange:
        shapes = tuple(forms.change_shape(change, cwd or self.cwd) for change in changes)  # type: ignore[arg-type]
        return FileChange(id=call_id, changes=shapes, status="inProgress")

    def _finish(self, item: ResponseItem, output: ToolOutput, took: int | None) -> None:
        """Tell what a call came to. Commands and patches that have begun tell it themselves."""
        call_id = called_id(item.view) or ""
        one = self._open.get(call_id)
        if one is None or (self._goes_on(one) and isinstance(one.call, CommandCall)):
            return
        del self._open[call_id]
        if (
            one.item is None
            and not one.runs
            and (untold := untold_item(call_id, one.call, output, self.cwd)) is not None
        ):
            one.item = untold
            self._begin(untold)
        if one.item is not None:
            parts = one.answer.output if one.answer is not None else ()
            self._complete(ended_item(one.item, output, took, refused=not one.runs, parts=parts), one.turn_id)
        if output.ends_turn:
            self._last = AgentMessage(id=random_id(), text=output.text)
            self._whole(self._last)

    # Telling

    def _begin(self, item: ThreadItem) -> None:
        started = self._begun[item.id] = now_ms()
        item = msgspec.structs.replace(item, started_at_ms=started)
        self._tell(told.ItemStarted, item=item, started_at_ms=started)

    def _complete(self, item: ThreadItem, turn_id: str = "") -> None:
        turn, ended = turn_id or self.turn_id, now_ms()
        item = msgspec.structs.replace(item, started_at_ms=self._begun.pop(item.id, ended), completed_at_ms=ended)
        if self._last is not None and item.id == self._last.id:
            self._last = item if isinstance(item, AgentMessage) else self._last
        self._sink.tell(told.ItemCompleted(thread_id=self.thread_id, turn_id=turn, item=item, completed_at_ms=ended))

    def _whole(self, item: ThreadItem) -> None:
        self._begin(item)
        self._complete(item)

    def _warn(self, message: str) -> None:
        self._sink.tell(told.Warned(message=message, thread_id=self.thread_id))

    def _tell(self, kind: Callable[..., Told], **fields: object) -> None:
        self._sink.tell(kind(thread_id=self.thread_id, turn_id=self.turn_id, **fields))

    def _offer(self, kind: Callable[..., Told], **fields: object) -> None:
        self._sink.offer(kind(thread_id=self.thread_id, turn_id=self.turn_id, **fields))
