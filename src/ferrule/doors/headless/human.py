"""`exec` for people: show what the agent does, as it does it."""

import os
from typing import TYPE_CHECKING

import msgspec

from ferrule._version import __version__
from ferrule.doors.headless.jsonl import INTERRUPTED
from ferrule.doors.headless.terminal import BOLD, CYAN, DIM, GREEN, RED, Terminal
from ferrule.execpolicy import command_text
from ferrule.history.pairs import called_id
from ferrule.process.screen_text import visible_text
from ferrule.protocol.content import text_of
from ferrule.protocol.events import (
    ContextCompacted,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    FileChange,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpServerStatus,
    NetworkRefused,
    PatchApplyBegin,
    PlanStep,
    PlanUpdate,
    SandboxStatus,
    ThreadStarted,
    TokenCount,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    UndoCompleted,
    WarningEvent,
)
from ferrule.protocol.hosted import hosted_line
from ferrule.protocol.items import Message, Reasoning, ResponseItem
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.prices import money
from ferrule.protocol.settings import Settings
from ferrule.protocol.thoughts import shown
from ferrule.rendering.calls import (
    Call,
    CommandCall,
    InputCall,
    InvalidCall,
    PatchCall,
    PlanCall,
    call_line,
    read_call,
)
from ferrule.rendering.safe import safe
from ferrule.rendering.undone import undone_lines
from ferrule.rendering.words import excerpt, reasoning_text, source_lines
from ferrule.tools.events import ChildEvent, ObservationEvent, ToolEvent

if TYPE_CHECKING:
    from ferrule.doors.headless.live import Live

OUTPUT_LINES = 12
"""Lines shown of a command's output: its beginning and its end. The model reads more."""
DIFF_LINES = 40
"""Lines shown of one file's diff."""
LONGEST_LINE = 200
"""Characters shown of one line of output."""

_PLAN_MARKS = {"completed": "✓", "in_progress": "▸"}


class _Running(msgspec.Struct):
    """A call that runs. `commands` counts those that it started."""

    call: Call
    commands: int = 0
    answered: bool = False
    changes: tuple[FileChange, ...] = ()


class Human:
    """A front end that prints for people. Answers no questions."""

    can_answer = False

    def __init__(self, terminal: Terminal, settings: Settings) -> None:
        self._out = terminal
        self._settings = settings
        self._live = _live(terminal)
        self._running: dict[str, _Running] = {}
        self._commands: dict[str, Call] = {}
        """Commands that run, by the calls that started them; a command may outlive its call."""
        self._completed: TurnCompleted | None = None
        self._heading: str | None = None
        """The call whose heading was written last."""
        self._streamed = ""
        """Text already written of the arriving item; `_kind` says whether it is text or reasoning."""
        self._kind = ""
        self.thread_id = ""

    def on_event(self, event: Event | ToolEvent) -> None:
        """Show the event."""
        self._show(event)
        if self._live is not None:
            self._live.on_event(event)

    def _show(self, event: Event | ToolEvent) -> None:
        match event:
            case SandboxStatus(reduced=True, level=level, problem=problem, not_stopped=holes):
                text = problem or f"commands are confined by {level} only; not stopped: {'; '.join(holes)}"
                self._block(self._out.style(f"warning: {safe(text)}", RED))
            case ThreadStarted():
                self._greet(event)
            case ItemUpdated(kind="text" | "reasoning"):
                self._stream(event.kind, event.delta)
            case ItemStarted(item=item):
                self._start(item)
            case ItemCompleted(item=item, output=None):
                self._say(item)
            case ItemCompleted(item=item, output=ToolOutput() as output):
                self._finish(item, output, event.duration_ms or 0)
            case PlanUpdate(plan=plan):
                self._show_plan(plan)
            case WarningEvent(message=message) | NetworkRefused(reason=message):
                self._block(self._out.style(f"warning: {safe(message)}", RED))
            case TokenCount(budget=budget) if budget:
                self._block(self._out.style(f"{budget} used", DIM))
            case McpServerStatus(status="waiting", message=message):
                self._out.line(self._out.style(safe(message), DIM))
            case ContextCompacted(tokens_before=before, tokens_after=after):
                self._block(self._out.style(f"conversation compacted: {before:,} -> {after:,} tokens", DIM))
            case TurnCompleted():
                self._completed = event
            case ChildEvent():
                self._show_child(event)
            case _:
                self._follow(event)

    def _show_child(self, event: ChildEvent) -> None:
        """Tell that a sub-agent has begun or ended, in one line; its parent reads the rest."""
        match event.event:
            case TurnStarted():
                self._out.line(self._out.style(f"sub-agent {event.thread_id} works", DIM))
            case TurnCompleted(last_message=text):
                said = safe(text).strip().partition("\n")[0][:LONGEST_LINE]
                self._out.line(self._out.style(f"sub-agent {event.thread_id}: {said}", DIM))
            case TurnFailed(message=message):
                self._out.line(self._out.style(f"sub-agent {event.thread_id} failed: {safe(message)}", RED))

    def _follow(self, event: Event | ToolEvent) -> None:
        """Follow what a call does, and an undo."""
        match event:
            case UndoCompleted():
                for line in undone_lines(event):
                    self._out.line(self._out.style(safe(line), DIM))
            case ExecCommandBegin():
                self._begin_command(event)
            case ExecCommandEnd(call_id=call_id) if call_id in self._commands:
                self._end_command(event, self._commands.pop(call_id))
            case ObservationEvent(call_id=call_id) if call_id in self._running:
                self._running[call_id].answered = True
            case PatchApplyBegin(call_id=call_id) if call_id in self._running:
                self._running[call_id].changes = event.changes

    def finish(self) -> None:
        """Sum up, once the session is closed."""
        self._end_text()
        if self._live is not None:
            self._live.close()
        if self._completed is not None:
            self._sum_up(self._completed)

    def fail(self, message: str) -> None:
        """Show that the run was interrupted; any other failure is shown by the command itself."""
        self._end_text()
        if self._live is not None:
            self._live.close()
        if message == INTERRUPTED:
            self._block(self._out.style(INTERRUPTED, RED))

    def _greet(self, event: ThreadStarted) -> None:
        self.thread_id = event.thread_id
        settings = self._settings
        mode = settings.sandbox_policy.__struct_config__.tag
        self._out.line(
            f"{self._out.style(f'ferrule {__version__}', BOLD)} · {safe(event.model)} · {safe(settings.cwd)}"
        )
        self._out.line(self._out.style(f"sandbox {mode} · approval {settings.approval_policy}", DIM))

    def _block(self, text: str) -> None:
        """Write a block with an empty line before it."""
        self._heading = None
        self._out.line()
        self._out.line(text)

    def _stream(self, kind: str, delta: str) -> None:
        """Write arriving text. A different kind of text starts a new paragraph."""
        is_new = kind != self._kind or not self._streamed
        self._streamed = delta if is_new else self._streamed + delta
        self._kind, text = kind, safe(delta)
        if is_new:
            self._heading = None
        if self._live is not None:
            self._live.say(kind, text)
            return
        if is_new:
            self._out.line()
        self._out.write(self._out.style(text, DIM) if kind == "reasoning" else text)

    def _end_text(self) -> None:
        """End the text that was arriving."""
        self._streamed = ""
        if self._live is not None:
            self._live.end_text()
        self._out.end_line()

    def _say(self, item: ResponseItem) -> None:
        """Write a whole item: the part that was not streamed, or all of it."""
        match item.view:
            case Message(content=content):
                self._rest("text", shown(text_of(content)))
                if sources := source_lines(content):
                    self._block(self._out.style("\n".join(map(safe, sources)), DIM))
            case Reasoning() as reasoning:
                self._rest("reasoning", reasoning_text(reasoning))
            case view if (line := hosted_line(view)) is not None:
                self._block(self._out.style(safe(line), CYAN))

    def _rest(self, kind: str, text: str) -> None:
        streamed = self._streamed if self._kind == kind else ""
        if not streamed or text.startswith(streamed):
            rest = text[len(streamed) :]
            if rest.strip():
                self._stream(kind, rest)
        self._end_text()

    def _start(self, item: ResponseItem) -> None:
        call, call_id = read_call(item.view), called_id(item.view)
        if call is not None and call_id is not None:
            self._end_text()
            self._running[call_id] = _Running(call)
            if not isinstance(call, PlanCall) and not (isinstance(call, InputCall) and not call.text):
                self._head(call_id, call)

    def _head(self, call_id: str, call: Call) -> None:
        wrong = isinstance(call, InvalidCall) or (isinstance(call, PatchCall) and not call.files)
        colors = (RED,) if wrong else (BOLD, CYAN)
        first, *rest = safe(call_line(call)).split("\n")
        self._block(
            "\n".join([self._out.style(first, *colors), *(self._out.style(f"  {line}", *colors) for line in rest)])
        )
        self._heading = call_id

    def _finish(self, item: ResponseItem, output: ToolOutput, duration_ms: int) -> None:
        call_id = called_id(item.view) or ""
        running = self._running.pop(call_id, None)
        failed = output.success is False
        if running is None:
            self._say(item)
        if running is None or (isinstance(running.call, PlanCall) and not failed):
            return
        if running.commands or (isinstance(running.call, InputCall) and running.answered):
            if call_id in self._commands:
                self._go_back_to(call_id, running.call)
                self._out.line(self._out.style("  … still running", DIM))
            return  # the command says the rest when it ends
        self._go_back_to(call_id, running.call)
        if failed:
            self._show_output(output.text)
            self._verdict(True, f"failed · {duration_ms / 1000:.1f} s")
        elif isinstance(running.call, PatchCall):
            self._show_changes(running.changes)
        elif output.ends_turn:
            self._rest("text", output.text)
        else:
            self._show_output(output.text)

    def _begin_command(self, event: ExecCommandBegin) -> None:
        """Note a command. A call may run several, and code may run one without a call of the model."""
        running = self._running.get(event.call_id)
        call = CommandCall(command_text(event.command)) if running is None else running.call
        if running is not None:
            call = CommandCall(command_text(event.command)) if running.commands else call
            running.commands += 1
        self._commands[event.call_id] = call

    def _end_command(self, event: ExecCommandEnd, call: Call) -> None:
        self._go_back_to(event.call_id, call)
        self._show_output(event.output)
        reason = "timed out" if event.timed_out else f"exit {event.exit_code}"
        self._verdict(bool(event.exit_code), f"{reason} · {event.duration_ms / 1000:.1f} s")

    def _go_back_to(self, call_id: str, call: Call) -> None:
        """Repeat the heading of a call if something else was written since."""
        if self._heading != call_id:
            self._head(call_id, call)
        self._heading = None

    def _verdict(self, failed: bool, text: str) -> None:
        mark, color = ("✗", RED) if failed else ("✓", GREEN)
        self._out.line(self._out.style(f"  {mark} {text}", color))

    def _show_output(self, text: str) -> None:
        shown = safe(visible_text(text)).rstrip("\n")
        for line in excerpt(shown.split("\n"), OUTPUT_LINES) if shown else ():
            self._out.line(self._out.style(f"  {line[:LONGEST_LINE]}", DIM))

    def _show_changes(self, changes: tuple[FileChange, ...]) -> None:
        for change in changes:
            verb = {"add": "added", "delete": "deleted"}.get(change.kind, "changed")
            target = f" -> {change.move_path}" if change.move_path else ""
            self._verdict(False, f"{verb} {safe(change.path + target)} (+{change.added} -{change.deleted})")
            diff = safe(change.unified_diff).rstrip("\n")
            for line in excerpt(diff.split("\n"), DIFF_LINES) if change.kind == "update" and diff else ():
                color = {"+": GREEN, "-": RED}.get(line[:1], DIM)
                self._out.line(self._out.style(f"    {line[:LONGEST_LINE]}", color))

    def _show_plan(self, plan: tuple[PlanStep, ...]) -> None:
        self._block(self._out.style("Plan", BOLD, CYAN))
        for step in plan:
            text = f"  {_PLAN_MARKS.get(step.status, '·')} {safe(step.step)}"
            self._out.line(self._out.style(text, DIM) if step.status == "completed" else text)

    def _sum_up(self, event: TurnCompleted) -> None:
        usage = event.usage
        cached = f" ({usage.cached_input_tokens:,} cached)" if usage.cached_input_tokens else ""
        tokens = f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"
        if event.cost is not None:
            tokens += f", cost {money(event.cost)}"
        resume = "" if self._settings.ephemeral else f" · go on: ferrule exec resume {self.thread_id} PROMPT"
        self._block(self._out.style(f"{tokens}{resume}", DIM))


def _live(terminal: Terminal) -> "Live | None":
    if not terminal.live:
        return None
    from ferrule.doors.headless.live import Live

    return Live(terminal)


def is_one_place(first: int, second: int) -> bool:
    """Return whether two descriptors lead to the same terminal or file."""
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False
