"""The terminal interface: the conversation, the plan, the composer or a dialog in its place, and the status line."""

import time
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Static

from ferrule.doors.terminal.composer import Composer
from ferrule.doors.terminal.conversation import Conversation
from ferrule.doors.terminal.dialogs import ApprovalPanel
from ferrule.doors.terminal.forms import FormPanel, form_of
from ferrule.doors.terminal.panel import Panel
from ferrule.doors.terminal.plan import PlanView
from ferrule.doors.terminal.status import StatusLine, about
from ferrule.doors.terminal.talk import Opening, Talk, as_words
from ferrule.doors.terminal.transcript import Transcript
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import (
    Event,
    ExecApproval,
    ItemStarted,
    ItemUpdated,
    PlanUpdate,
    TokenCount,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from ferrule.rendering.calls import call_line, read_call
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Question

TICK = 0.5
"""Seconds between two looks at the clock, and at questions that were withdrawn."""
TWICE = 2.0
"""Seconds within which a second Ctrl-C quits."""
THINKING = "Thinking"
PLACEHOLDER = "Say what to do; Enter sends"


class TerminalApp(App[int], inherit_bindings=False):
    """One session on the screen."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "interrupt"),
        Binding("ctrl+c", "leave", "quit", priority=True),
        Binding("ctrl+d", "end", "quit"),
        Binding("ctrl+o", "unfold", "unfold", priority=True),
        Binding("pageup", "scroll(-1)", "up", priority=True),
        Binding("pagedown", "scroll(1)", "down", priority=True),
    ]
    CSS = """
    Screen { layout: vertical; background: transparent; }
    #write { height: auto; max-height: 8; padding: 0 1; }
    #mark { width: 2; height: 1; }
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(ansi_color=True)
        self._opening = opening
        self.failure: FerruleError | None = None
        """Why the session could not be opened."""
        self.transcript = Transcript()
        self.composer = Composer(PLACEHOLDER)
        self.status = StatusLine()
        self.plan = PlanView()
        self.conversation = Conversation(self.transcript.add, self.transcript.touch)
        self.talk = Talk(opening.settings, self.show_event)
        self._panel: Panel | None = None
        self._answered: set[str] = set()
        self._last_leave = float("-inf")

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield self.transcript
        yield self.plan
        with Horizontal(id="write"):
            yield Static("›", id="mark")
            yield self.composer
        yield self.status

    def on_mount(self) -> None:
        """Show the screen first; the session opens meanwhile."""
        self.composer.focus()
        self.status.do("Starting")
        self.set_interval(TICK, self._tick)
        self.run_worker(self._begin(), group="session")

    async def _begin(self) -> None:
        """Open the session; say what was typed meanwhile."""
        opening, settings = self._opening, self._opening.settings
        warnings = opening.warnings
        try:
            if opening.sources is not None:
                loaded = await self.talk.confirmed(opening.sources)
                settings, warnings = loaded.settings, loaded.warnings
            await self.talk.open(settings, opening.stored)
        except FerruleError as error:
            self.failure = error
            self.exit()
            return
        self._show_about()
        self.conversation.begin(self.talk.model_name, settings.cwd, await self.talk.confinement())
        for text in warnings:
            self.conversation.warn(text)
        self.status.do("")
        await self.talk.work()

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        """Say it, or do what a command says."""
        if event.text.startswith("/"):
            self._command(event.text)
            return
        self.conversation.say(event.text)
        self.transcript.follows = True
        if self.talk.say(as_words(event.text)):
            self.run_worker(self.talk.work(), group="turns")

    def _command(self, text: str) -> None:
        name = text.split(maxsplit=1)[0]
        if name == "/quit":
            self.exit(0)
        else:
            self.conversation.note(f"there is no command {name}; there is /quit")

    def show_event(self, event: Event | ToolEvent) -> None:
        """Show an event of the session. Quick: it stands in the session's way."""
        if isinstance(event, Question):
            self._look_for_questions()
            return
        self.conversation.on_event(event)
        match event:
            case TurnStarted():
                self.status.do(THINKING)
            case ItemUpdated(kind="text"):
                self.status.do("Answering")
            case ItemStarted(item=item) if (call := read_call(item.view)) is not None:
                self.status.do(call_line(call).split("\n")[0])
            case PlanUpdate(plan=plan):
                self.plan.show(plan)
            case TokenCount():
                self._show_about()
            case TurnAborted():
                self.conversation.abort()
                self.status.do("")
            case TurnCompleted() | TurnFailed():
                self.status.do("")
                self._show_about()

    def _show_about(self) -> None:
        session = self.talk.session
        if session is not None:
            self.status.about = about(session.settings, session.model_name, session.spent.total_tokens)
            self.status.refresh()

    def _tick(self) -> None:
        self.transcript.tick()
        if self.status.doing:
            self.status.refresh()
        self._look_for_questions()

    def _look_for_questions(self) -> None:
        """Put the oldest question in the composer's place; take away the dialog of one that no longer waits."""
        waiting = [one for one in self.talk.questions() if one.request_id not in self._answered]
        if self._panel is not None and all(one.request_id != self._panel.request_id for one in waiting):
            self._close_panel()
        if self._panel is None and waiting:
            self._panel = panel_for(waiting[0])
            self.query_one("#write").display = False
            self.mount(self._panel, before=self.status)
            self._panel.focus()
        if self._panel is not None and self._panel.waiting != len(waiting):
            self._panel.waiting = len(waiting)
            self._panel.refresh(layout=True)

    def _close_panel(self) -> None:
        if self._panel is not None:
            self._panel.remove()
            self._panel = None
            self.query_one("#write").display = True
            self.composer.focus()

    def on_panel_answered(self, event: Panel.Answered) -> None:
        """Hand an answer over."""
        self._answered.add(event.request_id)
        self.talk.answer(event.request_id, event.answer)
        self._close_panel()
        self._look_for_questions()

    def action_interrupt(self) -> None:
        """End the running turn; never the program."""
        if self.talk.interrupt():
            self._close_panel()

    def action_leave(self) -> None:
        """Quit at the second time; empty the composer at the first."""
        now = time.monotonic()
        if now - self._last_leave < TWICE:
            self.exit(0)
            return
        self._last_leave = now
        self.composer.clear()
        self.status.say("Ctrl-C again quits")
        self.set_timer(TWICE, lambda: self.status.say(""))

    def action_end(self) -> None:
        """Quit where nothing is written, as in a shell."""
        if not self.composer.text:
            self.exit(0)

    def action_unfold(self) -> None:
        """Unfold everything, or fold it again."""
        self.transcript.toggle_all()

    def action_scroll(self, pages: int) -> None:
        """Scroll the conversation."""
        transcript = self.transcript
        transcript.scroll_to(y=transcript.scroll_offset.y + pages * max(transcript.size.height - 2, 1), animate=False)


def panel_for(question: Question) -> Panel:
    """Return the dialog of a question."""
    if isinstance(question, ExecApproval):
        return ApprovalPanel(question)
    return FormPanel(question.request_id, form_of(question))
