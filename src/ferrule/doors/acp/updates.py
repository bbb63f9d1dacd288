"""What happens in a session, as the updates of the protocol."""

import asyncio
import codecs
from collections.abc import Callable
from typing import Any

import msgspec
from acp.helpers import (
    plan_entry,
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message,
    update_user_message_text,
)
from acp.schema import TerminalToolCallContent
from pydantic import BaseModel

from ferrule.doors.acp.shown import (
    Content,
    absolute,
    bounded,
    diffs,
    fenced,
    input_of,
    kind_of,
    locations_of,
    output_content,
    picture_of,
    places_of,
    text_content,
    title_of,
)
from ferrule.history.pairs import called_id
from ferrule.protocol.content import ContentPart, InputImage, cited_pages, text_of
from ferrule.protocol.events import (
    ContextCompacted,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpServerStatus,
    McpToolCallProgress,
    NetworkRefused,
    PatchApplyBegin,
    PatchApplyProgress,
    PlanStep,
    PlanUpdate,
    SandboxStatus,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    UndoCompleted,
    ViewImage,
    WarningEvent,
)
from ferrule.protocol.hosted import hosted_line
from ferrule.protocol.items import Message, Reasoning, ResponseItem
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.thoughts import shown
from ferrule.rendering.calls import Call, CommandCall, InputCall, PlanCall, planned_in, read_call
from ferrule.rendering.safe import safe
from ferrule.rendering.undone import undone_lines
from ferrule.rendering.words import reasoning_text
from ferrule.tools.events import ChildEvent, ToolEvent

PAUSE_S = 0.2
"""Seconds between two updates of a command's output."""
KEPT_BYTES = 16 * 1024
"""Bytes of a running command's output that are shown: every update repeats them."""


class _Live:
    """The output of a command that runs."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.fresh = ""
        self.tail = ""
        self.timer: asyncio.TimerHandle | None = None

    def feed(self, chunk: bytes) -> None:
        text = self._decoder.decode(chunk)
        self.fresh += text
        self.tail = (self.tail + text)[-KEPT_BYTES:]


class _Known(msgspec.Struct):
    """A call that the client knows. `live`: its command runs. `over`: nothing of it is open any more."""

    call: Call | None
    live: _Live | None = None
    over: bool = False
    has_terminal: bool = False
    diffs: list[Any] = []


Send = Callable[[BaseModel], None]


class Updates:
    """Sends what a client shows. `terminals`: it shows a command's output as a terminal, where the output comes in
    pieces. `agent` is the sub-agent whose work this is: its calls are shown, not what it says."""

    def __init__(self, send: Send, cwd: str, *, terminals: bool = False, agent: str = "") -> None:
        self._send = send
        self._cwd = cwd
        self._terminals = terminals
        self._agent = agent
        self._calls: dict[str, _Known] = {}
        self._children: dict[str, Updates] = {}
        self._open = ""
        """Which kind of text arrives."""
        self._said = ""
        """What has arrived of it."""
        self._item = ""
        self._hosted = 0
        """How many calls the provider has run itself."""

    def call_id(self, call_id: str, agent: str = "") -> str:
        """Return the id by which the client knows a call of ours, or of a sub-agent."""
        agent = agent or self._agent
        return f"{agent}:{call_id}" if agent else call_id

    def on_event(self, event: Event | ToolEvent) -> None:
        """Show an event."""
        match event:
            case ItemUpdated(kind="text" | "reasoning" as kind, item_id=item_id, delta=delta):
                self._arrive(kind, item_id, delta)
            case ItemStarted(item=item):
                self._begin(item)
            case ItemCompleted(item=item, output=None):
                self._complete(item)
            case ItemCompleted(item=item, output=ToolOutput() as output):
                self._finish(item, output)
            case PlanUpdate(plan=plan):
                self._plan(plan)
            case TurnCompleted() | TurnFailed() | TurnAborted():
                self._end_turn(completed=isinstance(event, TurnCompleted))
            case ChildEvent(thread_id=thread_id):
                if thread_id not in self._children:
                    self._children[thread_id] = Updates(
                        self._send, self._cwd, terminals=self._terminals, agent=thread_id
                    )
                self._children[thread_id].on_event(event.event)
            case _ if (text := _told(event)) and not self._agent:
                self.note(text)
            case _:
                self._follow(event)

    def note(self, text: str) -> None:
        """Say something that is Ferrule's own, in a paragraph of its own."""
        self._close_text()
        self._send(update_agent_message_text(f"{safe(text)}\n\n"))

    def _follow(self, event: Event | ToolEvent) -> None:
        """Follow what a call does."""
        match event:
            case ExecCommandBegin(call_id=call_id):
                self._begin_command(event)
            case ExecCommandOutputDelta(call_id=call_id, chunk=chunk):
                known = self._calls.get(call_id)
                if known is not None and known.live is not None:
                    known.live.feed(chunk)
                    self._soon(call_id, known.live)
            case ExecCommandEnd():
                self._end_command(event)
            case PatchApplyProgress(call_id=call_id, changes=changes) if changes:
                if call_id not in self._calls:
                    self._calls[call_id] = _Known(None)
                    self._start(
                        call_id, "Edit", kind="edit", status="pending", locations=locations_of(changes, self._cwd)
                    )
            case PatchApplyBegin(call_id=call_id, changes=changes, cwd=cwd):
                known = self._known(call_id, "Edit")
                known.diffs = [*known.diffs, *diffs(changes, cwd or self._cwd)]
                self._update(call_id, content=known.diffs, locations=locations_of(changes, cwd or self._cwd))
            case McpToolCallProgress(call_id=call_id, message=message) if call_id in self._calls:
                share = f"{event.progress:g}" + ("" if event.total is None else f" of {event.total:g}")
                self._update(call_id, content=[text_content(safe(f"{share} {message}".strip()))])
            case ViewImage(call_id=call_id, path=path) if call_id in self._calls:
                self._update(call_id, locations=[{"path": absolute(self._cwd, path)}])

    def _arrive(self, kind: str, item_id: str, delta: str) -> None:
        if self._agent or not delta:
            return
        if self._open != kind or self._item != item_id:
            after = self._open == kind
            self._close_text()
            self._open, self._item = kind, item_id
            delta = f"\n\n{delta}" if after else delta
        self._said += delta
        self._say(kind, delta)

    def _say(self, kind: str, text: str) -> None:
        self._send(update_agent_message_text(text) if kind == "text" else update_agent_thought_text(text))

    def _close_text(self) -> None:
        self._open, self._said, self._item = "", "", ""

    def _complete(self, item: ResponseItem) -> None:
        """Take a whole item; what was streamed of it is there already."""
        if self._agent:
            return
        match item.view:
            case Message(role="assistant", content=content):
                self._say_whole("text", shown(text_of(content)))
                pages = [
                    f"[{page.get('title') or page.get('url')}]({page.get('url')})" for page in cited_pages(content)
                ]
                if pages:
                    self.note("Sources: " + ", ".join(pages))
            case Reasoning() as reasoning:
                self._say_whole("reasoning", reasoning_text(reasoning))
            case view if (line := hosted_line(view)) is not None:
                self._close_text()
                self._hosted += 1
                self._start(f"hosted_{self._hosted}", safe(line), kind="fetch", status="completed")

    def _say_whole(self, kind: str, text: str) -> None:
        before = self._said.lstrip("\n") if self._open == kind else ""
        rest = text.removeprefix(before) if text.startswith(before) else ""
        if rest.strip():
            self._say(kind, rest)
        self._close_text()

    def _begin(self, item: ResponseItem) -> None:
        call, call_id = read_call(item.view), called_id(item.view)
        if call is None or call_id is None:
            return
        self._close_text()
        arriving = self._calls.get(call_id)
        self._calls[call_id] = _Known(call)
        if isinstance(call, PlanCall) or (isinstance(call, InputCall) and not call.text):
            self._calls[call_id].over = True  # the plan is shown by itself; a wait shows nothing
            return
        fields = {
            "kind": kind_of(call), "status": "in_progress", "locations": places_of(call, self._cwd) or None,
            "raw_input": input_of(call),
        }  # fmt: skip
        if arriving is None:
            self._start(call_id, title_of(call), **fields)
        else:
            self._update(call_id, title=self._title(title_of(call)), **fields)

    def _title(self, title: str) -> str:
        return f"sub-agent: {title}" if self._agent else title

    def _start(self, call_id: str, title: str, **fields: Any) -> None:
        self._send(start_tool_call(self.call_id(call_id), self._title(title), **fields))

    def _update(self, call_id: str, meta: dict[str, object] | None = None, **fields: Any) -> None:
        update = update_tool_call(self.call_id(call_id), **fields)
        self._send(update if meta is None else update.model_copy(update={"field_meta": meta}))

    def _known(self, call_id: str, title: str) -> _Known:
        """Return a call, which begins now if nothing was told of it: code may act without a call of the model."""
        known = self._calls.get(call_id)
        if known is None:
            known = self._calls[call_id] = _Known(None)
            self._start(call_id, title, status="in_progress")
        return known

    def _begin_command(self, event: ExecCommandBegin) -> None:
        call_id = event.call_id
        title = title_of(CommandCall(event.command[-1] if event.command else ""))
        known = self._known(call_id, title)
        known.live = _Live()
        if self._terminals:  # a question may stand in its place since an earlier attempt
            known.has_terminal = True
            terminal = self.call_id(call_id)
            content = [TerminalToolCallContent(type="terminal", terminal_id=terminal)]
            self._update(call_id, {"terminal_info": {"terminal_id": terminal, "cwd": event.cwd}}, content=content)

    def _soon(self, call_id: str, live: _Live) -> None:
        if live.timer is None:
            live.timer = asyncio.get_running_loop().call_later(PAUSE_S, self._flush, call_id)

    def _flush(self, call_id: str) -> None:
        """Show the output that is new."""
        known = self._calls.get(call_id)
        if known is None or known.live is None:
            return
        live, known.live.timer = known.live, None
        if not live.fresh:
            return
        fresh, live.fresh = live.fresh, ""
        if known.has_terminal:
            self._update(call_id, {"terminal_output": {"terminal_id": self.call_id(call_id), "data": fresh}})
        else:
            self._update(call_id, content=[*known.diffs, text_content(fenced(bounded(live.tail)))])

    def _end_command(self, event: ExecCommandEnd) -> None:
        known = self._calls.get(event.call_id)
        if known is None or known.live is None:
            return
        if known.live.timer is not None:
            known.live.timer.cancel()
        if known.has_terminal:
            self._flush(event.call_id)
        known.live = None
        failed = bool(event.exit_code) or event.timed_out
        terminal = {"terminal_id": self.call_id(event.call_id), "exit_code": event.exit_code, "signal": None}
        content: list[Content] | None = None
        if not known.has_terminal:
            content = [*known.diffs, *output_content(event.output)]
        self._update(
            event.call_id,
            {"terminal_exit": terminal} if known.has_terminal else None,
            status="failed" if failed else "completed",
            content=content,
            raw_output={"exit_code": event.exit_code, "timed_out": event.timed_out, "duration_ms": event.duration_ms},
        )
        known.over = True

    def _finish(self, item: ResponseItem, output: ToolOutput) -> None:
        call_id = called_id(item.view) or ""
        known = self._calls.get(call_id)
        if known is None:
            self._begin(item)
            known = self._calls.get(call_id)
        if known is None:
            self._complete(item)
            return
        failed = output.success is False
        if isinstance(known.call, PlanCall) and failed:
            self._start(call_id, "Plan", kind="think", status="failed", content=output_content(_body(output)))
        if known.over or known.live is not None:
            return  # the command says the rest when it ends
        known.over = True
        content = None if known.diffs and not failed else output_content(_body(output))  # the diffs stand there
        self._update(call_id, status="failed" if failed else "completed", content=content)
        if output.ends_turn:
            self._say_whole("text", output.text)

    def decided(self, call_id: str, *, allowed: bool, apart: bool) -> None:
        """Show how a question about a call was decided; of one that is `apart` nothing else will be told."""
        status: Any = "completed" if apart and allowed else "failed" if apart else "in_progress"
        if apart or allowed:
            self._send(update_tool_call(call_id, status=status))

    def _plan(self, plan: tuple[PlanStep, ...]) -> None:
        if not self._agent:
            self._send(plan_of(plan))

    def _end_turn(self, *, completed: bool) -> None:
        """Leave no call open: a command that goes on is told of again when it ends."""
        self._close_text()
        for call_id, known in list(self._calls.items()):
            if known.live is not None:
                self._flush(call_id)
                self._update(call_id, status="completed")
            else:
                if not known.over:
                    self._update(call_id, status="failed")
                del self._calls[call_id]
        if not completed:
            for child in self._children.values():
                child._end_turn(completed=False)

    def stop(self) -> None:
        """Send nothing later."""
        for known in self._calls.values():
            if known.live is not None and known.live.timer is not None:
                known.live.timer.cancel()
        for child in self._children.values():
            child.stop()

    def said(self, parts: tuple[ContentPart, ...]) -> None:
        """Show what the user said, of a stored conversation."""
        for part in parts:
            if isinstance(part, InputImage):
                if (picture := picture_of(part)) is not None:
                    self._send(update_user_message(picture))
            elif text := text_of((part,)):
                self._send(update_user_message_text(text))

    def stored(self, item: ResponseItem) -> None:
        """Show an item of a stored conversation: a message, reasoning or a call."""
        if called_id(item.view) is None:
            self._complete(item)
            return
        call = read_call(item.view)
        if isinstance(call, PlanCall) and (plan := planned_in(call)):
            self._plan(plan)
        self._begin(item)

    def answered(self, call_id: str, body: Any) -> None:
        """Show the answer to a call of a stored conversation."""
        known = self._calls.pop(call_id, None)
        if known is not None and not known.over:
            self._update(
                call_id, status="completed", content=output_content(body if isinstance(body, tuple) else str(body))
            )


def plan_of(plan: tuple[PlanStep, ...]) -> BaseModel:
    """Return the update of a plan."""
    return update_plan(plan_entry(safe(step.step), status=_status(step.status)) for step in plan)


def _status(status: str) -> Any:
    return status if status in ("in_progress", "completed") else "pending"


def _body(output: ToolOutput) -> str | tuple[ContentPart, ...]:
    body = output.shown
    return body if isinstance(body, tuple) else output.text


def _told(event: Event | ToolEvent) -> str:
    """Return what an event tells the user in words; empty for one that is shown otherwise, or not at all."""
    match event:
        case WarningEvent(message=message) | NetworkRefused(reason=message):
            return f"⚠ {message}"
        case McpServerStatus(status="failed", message=message):
            return f"⚠ {message}"
        case SandboxStatus(problem=str() as problem):
            return f"⚠ {problem}"
        case SandboxStatus(reduced=True, level=level, not_stopped=holes):
            return f"⚠ commands are confined by {level}; not stopped: {'; '.join(holes)}"
        case ContextCompacted(tokens_before=before, tokens_after=after):
            return f"The conversation was compacted: {before:,} -> {after:,} tokens."
        case UndoCompleted():
            return "\n".join(undone_lines(event))
    return ""
