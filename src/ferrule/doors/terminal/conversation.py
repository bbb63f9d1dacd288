"""From a session's events to the cells of its conversation."""

import traceback
from collections.abc import Callable, Sequence

from ferrule._version import __version__
from ferrule.doors.terminal.cell import Cell
from ferrule.doors.terminal.cells import (
    Call,
    Child,
    CommandCell,
    Folded,
    Heading,
    Image,
    Note,
    Said,
    Thought,
    ToolCell,
    failure,
    warning,
)
from ferrule.doors.terminal.images import Picture
from ferrule.doors.terminal.patches import BEGIN, PatchCell
from ferrule.doors.terminal.prose import Prose
from ferrule.doors.terminal.strips import CYAN, DIM, RED
from ferrule.execpolicy import command_text
from ferrule.history.pairs import called_id
from ferrule.protocol.content import ContentPart, InputImage, text_of
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
    McpToolCallProgress,
    NetworkRefused,
    PatchApplyBegin,
    PatchApplyProgress,
    PlanStep,
    PlanUpdate,
    SandboxStatus,
    TerminalInteraction,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    UndoCompleted,
    ViewImage,
    WarningEvent,
)
from ferrule.protocol.hosted import hosted_line
from ferrule.protocol.items import Message, Reasoning, ResponseItem
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.thoughts import shown
from ferrule.rendering.calls import (
    CommandCall,
    InputCall,
    InvalidCall,
    PatchCall,
    PlanCall,
    call_line,
    planned_in,
    read_call,
)
from ferrule.rendering.undone import undone_lines
from ferrule.rendering.words import reasoning_text, source_lines
from ferrule.tools.events import ActionEvent, ChildEvent, ObservationEvent, ToolEvent

KEPT_OUTPUT_BYTES = 24 * 1024 * 1024
"""Bytes of finished outputs that are kept whole; of those before them, the beginning and the end."""
SHORTENED_BYTES = 2048
LOOKED_AT = 256
"""Characters of a call's arguments in which a patch begins, if it is one."""


class Conversation:
    """Makes the cells. `add` shows a new one, `changed` says that one looks different now, `place` gives an image to
    the terminal."""

    def __init__(
        self,
        add: Callable[[Cell], None],
        changed: Callable[[Cell], None],
        place: Callable[[str], Picture | None] = lambda url: None,
    ) -> None:
        self._add, self._changed, self._place = add, changed, place
        self._looked: dict[str, Image] = {}
        """The images that calls look at, until their answers bring them."""
        self._calls: dict[str, Call] = {}
        """The calls that run, and the commands that outlive theirs."""
        self._edits: dict[str, PatchCell] = {}
        """What calls of other tools write, below those calls."""
        self._commands: dict[str, Call] = {}
        self._arriving: dict[str, str] = {}
        """How the arguments of calls begin that are not known yet."""
        self._children: dict[str, tuple[Child, Conversation]] = {}
        self._text: Prose | Thought | None = None
        self._outputs: list[Call] = []
        self._output_bytes = 0
        self.plan: tuple[PlanStep, ...] = ()
        self.last_answer = ""

    def begin(self, model: str, cwd: str, sandbox: SandboxStatus | None) -> None:
        """Show which session this is, and what confines its commands."""
        self._put(Heading(f"ferrule {__version__}", f"{model} · {cwd}"))
        if sandbox is not None:
            self._put(sandbox_cell(sandbox))

    def say(self, text: str, parts: Sequence[ContentPart] = ()) -> None:
        """Show what the user says."""
        self._put(Said(text))
        self._show_images(parts, "of yours")

    def note(self, text: str) -> None:
        """Show a line of the program itself."""
        self._put(Note(text))

    def warn(self, text: str) -> None:
        """Show a warning of the program itself."""
        self._put(warning(text))

    def tell_fault(self, fault: Exception) -> None:
        """Show a fault of the program itself: one row, and where it was to those who unfold it."""
        place = "".join(traceback.format_exception(fault)).rstrip()
        self._put(Folded(f"{fault!r}; the session goes on\n{place}", ("fault of Ferrule: ", RED)))

    def on_event(self, event: Event | ToolEvent) -> None:
        """Take an event."""
        match event:
            case ItemUpdated(kind="text", delta=delta):
                self._answer().feed(delta)
            case ItemUpdated(kind="reasoning", delta=delta):
                self._think(delta)
            case ItemUpdated(kind="input", call_id=str() as call_id):
                self._arrive(call_id, event.delta)
            case ItemStarted(item=item):
                self._start(item)
            case ItemCompleted(item=item, output=None):
                self._complete(item)
            case ItemCompleted(item=item, output=ToolOutput() as output):
                self._finish(item, output)
            case ChildEvent():
                self._follow_child(event)
            case ViewImage(call_id=call_id, path=path):
                self._looked[call_id] = Image(path)
                self._put(self._looked[call_id])
            case _ if (cell := _of_session(event)) is not None:
                self._put(cell)
            case _:
                self._follow(event)

    def _follow(self, event: Event | ToolEvent) -> None:
        """Follow what a call does."""
        match event:
            case PlanUpdate(plan=plan):
                self.plan = plan
            case ExecCommandBegin():
                self._begin_command(event)
            case ExecCommandOutputDelta(call_id=call_id, chunk=chunk) if call_id in self._commands:
                self._commands[call_id].output.add(chunk)
                self._touch(self._commands[call_id])
            case ExecCommandEnd(call_id=call_id) if call_id in self._commands:
                self._end_command(event, self._commands.pop(call_id))
            case TerminalInteraction(stdin=stdin) if stdin:
                self._put(Note(f"input: {stdin!r}"))
            case PatchApplyProgress(call_id=call_id, changes=changes):
                self._patch(call_id).name(changes)
            case (
                PatchApplyBegin(call_id=call_id, changes=changes)
                | ExecApproval(call_id=call_id, changes=changes, agent_id="")
            ) if changes:
                patch = self._patch(call_id)
                patch.change(changes)
                self._touch(patch)
            case McpToolCallProgress(call_id=call_id, message=message) if call_id in self._calls:
                cell = self._calls[call_id]
                if isinstance(cell, ToolCell):
                    share = f"{event.progress:g}" + ("" if event.total is None else f" of {event.total:g}")
                    cell.progress = f"{share} {message}".strip()
                    self._touch(cell)
            case ActionEvent(call_id=call_id, action=action) | ObservationEvent(call_id=call_id, observation=action):
                self._visualize(call_id, action, done=isinstance(event, ObservationEvent))

    def _follow_child(self, event: ChildEvent) -> None:
        if event.thread_id not in self._children:
            cell = Child(event.thread_id)
            self._children[event.thread_id] = cell, Conversation(cell.add, lambda inner: cell.forget())
            self._put(cell)
        cell, inner = self._children[event.thread_id]
        match event.event:
            case TurnStarted():
                cell.state = "works"
            case TurnCompleted():
                cell.state = "is done"
            case TurnFailed() | TurnAborted():
                cell.state = "failed" if isinstance(event.event, TurnFailed) else "was interrupted"
                inner.abort()
        inner.on_event(event.event)
        self._touch(cell)

    def _visualize(self, call_id: str, shown: object, *, done: bool) -> None:
        """Show a user's tool as it wants to be shown."""
        cell = self._calls.get(call_id)
        if not isinstance(cell, ToolCell) or type(shown).__module__.startswith("ferrule."):
            return
        if done:
            cell.result = shown
        else:
            cell.shown = shown
        self._touch(cell)

    def _put(self, cell: Cell) -> None:
        self._end_text()
        self._add(cell)

    def _touch(self, cell: Cell) -> None:
        cell.forget()
        self._changed(cell)

    def _end_text(self) -> None:
        if isinstance(self._text, Prose):
            self.last_answer = self._text.text
        self._text = None

    def _answer(self) -> Prose:
        if not isinstance(self._text, Prose):
            self._end_text()
            self._text = Prose(self._add, self._changed)
        return self._text

    def _think(self, delta: str) -> None:
        if not isinstance(self._text, Thought):
            self._end_text()
            self._text = Thought()
            self._add(self._text)
        self._text.feed(delta)
        self._changed(self._text)

    def _complete(self, item: ResponseItem) -> None:
        """Take a whole item; what was streamed of it is there already."""
        match item.view:
            case Message(role="assistant", content=content):
                self._say_whole(shown(text_of(content)))
                if sources := source_lines(content):
                    self._put(Note("\n".join(sources)))
            case Reasoning() as reasoning:
                if (text := reasoning_text(reasoning)).strip() and not isinstance(self._text, Thought):
                    self._think(text)
                self._end_text()
            case view if (line := hosted_line(view)) is not None:
                self._put(Note(line, ("", CYAN)))

    def _say_whole(self, text: str) -> None:
        """Take a whole answer, of which a part may be there already."""
        if text.strip():
            self._answer().complete(text)
        self._end_text()

    def _arrive(self, call_id: str, delta: str) -> None:
        """Look at a call that is arriving: a patch is shown while it grows."""
        cell = self._calls.get(call_id)
        if isinstance(cell, PatchCell):
            cell.feed(delta)
            self._changed(cell)
            return
        begun = self._arriving.get(call_id, "")
        if len(begun) > LOOKED_AT:
            return
        self._arriving[call_id] = begun = begun + delta
        if BEGIN in begun:
            patch = self._patch(call_id)
            patch.feed(begun)
            self._changed(patch)

    def _patch(self, call_id: str) -> PatchCell:
        known = self._calls.get(call_id)
        if isinstance(known, PatchCell):
            return known
        if call_id in self._edits:
            return self._edits[call_id]
        cell = PatchCell()
        if known is None:
            self._calls[call_id] = cell
        else:
            self._edits[call_id] = cell
        self._put(cell)
        return cell

    def _start(self, item: ResponseItem) -> None:
        call, call_id = read_call(item.view), called_id(item.view)
        if call is None or call_id is None:
            return
        self._arriving.pop(call_id, None)
        known = self._calls.get(call_id)
        match call:
            case PatchCall(files=files) if files:
                patch = self._patch(call_id)
                patch.start([file.path for file in files])
                self._touch(patch)
                return
            case PlanCall() | InputCall(text=""):
                return
            case CommandCall(text=text):
                cell: Call = CommandCell(text)
            case InvalidCall() | PatchCall():
                cell = ToolCell(call_line(call), wrong=True)
            case _:
                cell = ToolCell(call_line(call))
        if known is not None:
            known.end(True, "not a patch")
            self._touch(known)
        self._calls[call_id] = cell
        self._put(cell)

    def _finish(self, item: ResponseItem, output: ToolOutput) -> None:
        call_id = called_id(item.view) or ""
        if isinstance(body := output.shown, tuple):
            self._show_images(body, "of a tool", self._looked.pop(call_id, None))
        cell, edit = self._calls.pop(call_id, None), self._edits.pop(call_id, None)
        failed = output.success is False
        if edit is not None:
            self._end_call(edit, failed, "failed" if failed else "done")
        if cell is None:
            self._complete(item)
            return
        if cell in self._commands.values() or cell.verdict is not None:
            return  # the command says the rest when it ends
        if failed or not isinstance(cell, PatchCell):
            cell.output.replace(output.text)
        if output.ends_turn:
            self._say_whole(output.text)
            cell.output.replace("")
        self._end_call(cell, failed, "failed" if failed else "done")

    def _show_images(self, parts: Sequence[ContentPart], title: str, known: Image | None = None) -> None:
        """Show images where they can be, the first in the cell that names it."""
        for part in parts:
            if isinstance(part, InputImage):
                picture = self._place(part.image_url or "")
                if known is None:
                    self._put(Image(title, picture))
                else:
                    known.picture = picture
                    self._touch(known)
                known = None

    def _begin_command(self, event: ExecCommandBegin) -> None:
        """Note a command. A call may run several, and code may run one without a call of the model."""
        cell = self._calls.get(event.call_id)
        if not isinstance(cell, Call) or cell in self._commands.values() or cell.verdict is not None:
            cell = CommandCell(command_text(event.command))
            self._put(cell)
        self._commands[event.call_id] = cell

    def _end_command(self, event: ExecCommandEnd, cell: Call) -> None:
        cell.output.replace(event.output)
        reason = "timed out" if event.timed_out else f"exit {event.exit_code}"
        self._end_call(cell, bool(event.exit_code), f"{reason} · {event.duration_ms / 1000:.1f} s")

    def _end_call(self, cell: Call, failed: bool, text: str) -> None:
        cell.end(failed, text)
        self._outputs.append(cell)
        self._output_bytes += cell.output.size
        while self._output_bytes > KEPT_OUTPUT_BYTES and len(self._outputs) > 1:
            old = self._outputs.pop(0)
            self._output_bytes -= old.output.size
            old.output.shorten(SHORTENED_BYTES)
            self._touch(old)
        self._touch(cell)

    def stored(self, item: ResponseItem) -> None:
        """Take an item of a stored conversation: a message, reasoning or a call."""
        call = read_call(item.view)
        if isinstance(call, PlanCall):
            self.plan = planned_in(call) or self.plan
        if called_id(item.view) is None:
            self._complete(item)
        else:
            self._start(item)

    def answered(self, call_id: str, text: str) -> None:
        """Take the answer to a call of a stored conversation."""
        cell = self._calls.pop(call_id, None)
        if cell is not None:
            cell.output.replace(text)
            self._end_call(cell, False, "")

    def abort(self) -> None:
        """End what was under way: the turn was interrupted."""
        self._end_text()
        for cell in (*self._calls.values(), *self._edits.values()):
            if cell.verdict is None and cell not in self._commands.values():
                self._end_call(cell, True, "interrupted")
        self._calls.clear()
        self._edits.clear()
        self._arriving.clear()


def _of_session(event: Event | ToolEvent) -> Cell | None:
    """Return the cell of an event that is shown by itself."""
    match event:
        case WarningEvent(message=message) | NetworkRefused(reason=message):
            return warning(message)
        case ErrorEvent(message=message):
            return failure(message)
        case TurnAborted():
            return Note("interrupted")
        case ContextCompacted(tokens_before=before, tokens_after=after):
            return Note(f"conversation compacted: {before:,} -> {after:,} tokens")
        case UndoCompleted():
            return Note("\n".join(undone_lines(event)))
        case McpServerStatus(status="waiting" | "failed", message=message):
            return warning(message)
    return None


def sandbox_cell(event: SandboxStatus) -> Cell:
    """Return the line that says what confines commands."""
    if event.problem:
        return warning(event.problem)
    holes = f"; not stopped: {'; '.join(event.not_stopped)}" if event.not_stopped else ""
    text = f"commands are confined by {event.level}{holes}"
    return warning(text) if event.reduced else Folded(text, ("sandbox: ", DIM))
