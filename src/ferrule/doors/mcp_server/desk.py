"""The front end of a session whose user sits behind an MCP client: events become progress and log messages, questions
forms of the client."""

from collections.abc import Callable

from mcp_types import LoggingLevel

from ferrule.dispatch.front_end import Answers, Callbacks
from ferrule.doors.mcp_server.calls import Call, Notes
from ferrule.doors.mcp_server.questions import CANNOT_ASK, NO_ANSWER, NOT_ASKED, TOO_LONG, answer_of, form_of
from ferrule.doors.mcp_server.results import text_name
from ferrule.doors.mcp_server.shelf import Shelf
from ferrule.protocol.content import text_of
from ferrule.protocol.events import (
    ErrorEvent,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    McpServerStatus,
    McpToolCallProgress,
    NetworkRefused,
    PatchApplyBegin,
    WarningEvent,
)
from ferrule.protocol.items import Message
from ferrule.rendering.safe import plain
from ferrule.tools.action import Observation
from ferrule.tools.events import ChildEvent, ObservationEvent, ToolEvent
from ferrule.tools.questions import Answer, NoAnswer, Question

LONGEST = 200
"""Characters of a report of progress: a line."""

BIG = 20_000
"""Characters of a command's output from which it is kept whole: a result holds some 40,000 at most, often less."""


class Desk(Callbacks):
    """Serves the calls that run in one session. `elicits`: the client can ask its user. `in_turns`: one call runs at a
    time, and all that happens belongs to it."""

    def __init__(self, notes: Notes, shelf: Shelf, *, elicits: bool, in_turns: bool = False) -> None:
        super().__init__(None, None)
        self.calls: dict[str, Call] = {}
        self.observed: dict[str, Observation] = {}
        """What tools observed, for the calls that run."""
        self._notes = notes
        self._shelf = shelf
        self._elicits = elicits
        self._in_turns = in_turns

    @property
    def can_answer(self) -> bool:
        """Whether questions come here: also those that cannot be asked, which then get an answer in words."""
        return True

    @property
    def answers(self) -> Answers:
        """What the client's user can be asked."""
        return Answers(self._elicits, self._elicits)

    async def answer(self, question: Question) -> Answer:
        """Ask the user in the call that asks, or in the newest one."""
        call = self._call(getattr(question, "call_id", ""))
        if call is None:
            return NoAnswer(NOT_ASKED)
        if not call.elicits:
            return NoAnswer(CANNOT_ASK)
        form = form_of(question)
        if form is None:
            return NoAnswer(TOO_LONG)
        result = await call.ask(form)
        return NoAnswer(NO_ANSWER) if result is None else answer_of(question, result)

    def on_event(self, event: Event | ToolEvent) -> None:
        """See what happens."""
        told = _LOGGED.get(type(event))
        if told is not None:
            told(self._notes, event)
            return
        match event:
            case ObservationEvent():
                if event.call_id in self.calls:
                    self.observed[event.call_id] = event.observation
            case ExecCommandEnd():
                self._keep(event)
            case ChildEvent():
                self.on_event(event.event)
            case _:
                self._show(event)

    def _keep(self, event: ExecCommandEnd) -> None:
        if len(event.output) > BIG:
            described = "What a command wrote"
            self._shelf.put(text_name(event.call_id), described, "text/plain", event.output)

    def _show(self, event: Event | ToolEvent) -> None:
        call_id, words = getattr(event, "call_id", ""), _words(event)
        call = self._call(call_id) if self._in_turns else self.calls.get(call_id)
        if call is not None and words:
            call.latest = plain(words)[:LONGEST]

    def _call(self, call_id: str) -> Call | None:
        return self.calls.get(call_id) or next(reversed(self.calls.values()), None)


def _words(event: Event | ToolEvent) -> str:
    """Return the line that tells of an event; empty for one that tells nothing."""
    match event:
        case ExecCommandOutputDelta(chunk=chunk):
            lines = chunk[-4 * LONGEST :].decode(errors="replace").split("\n")
            return next((line for line in reversed(lines) if line.strip()), "")
        case ExecCommandBegin(command=command):
            return f"$ {command[-1]}" if command else ""
        case PatchApplyBegin(changes=changes):
            return f"writes {', '.join(change.path for change in changes)}"
        case McpToolCallProgress(message=message):
            return message
        case ItemCompleted(item=item) if isinstance(item.view, Message) and item.view.role == "assistant":
            return text_of(item.view.content)
        case _:
            return ""


def _at(level: LoggingLevel, field: str) -> Callable[[Notes, object], None]:
    return lambda notes, event: notes.add(level, plain(str(getattr(event, field))))


def _tell_state(notes: Notes, event: object) -> None:
    assert isinstance(event, McpServerStatus)
    level: LoggingLevel = "warning" if event.status == "failed" else "debug"
    notes.add(level, plain(f"MCP server {event.server}: {event.status} {event.message}"))


_LOGGED: dict[type, Callable[[Notes, object], None]] = {
    WarningEvent: _at("warning", "message"),
    ErrorEvent: _at("error", "message"),
    NetworkRefused: _at("warning", "reason"),
    McpServerStatus: _tell_state,
}
