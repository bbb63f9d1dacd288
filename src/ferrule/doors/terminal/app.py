"""The terminal interface: the conversation, the plan, the composer or a dialog in its place, and the status line."""

import os
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Static
from textual.worker import Worker

from ferrule.doors.terminal import signals
from ferrule.doors.terminal.commands import run_command, suggested
from ferrule.doors.terminal.composer import Composer
from ferrule.doors.terminal.conversation import Conversation
from ferrule.doors.terminal.dialogs import ApprovalPanel
from ferrule.doors.terminal.editor import edited, editor_command
from ferrule.doors.terminal.forms import FormPanel, form_of
from ferrule.doors.terminal.panel import Panel
from ferrule.doors.terminal.pickers import Item, Picker
from ferrule.doors.terminal.plan import PlanView
from ferrule.doors.terminal.status import StatusLine, about
from ferrule.doors.terminal.stored import stored_cells
from ferrule.doors.terminal.suggestions import Suggestions
from ferrule.doors.terminal.talk import Opening, Talk, Words, as_words
from ferrule.doors.terminal.transcript import Transcript
from ferrule.prompts import expand_prompt
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import (
    Event,
    ExecApproval,
    ItemStarted,
    ItemUpdated,
    McpServerStatus,
    PlanUpdate,
    TokenCount,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from ferrule.rendering.calls import call_line, read_call
from ferrule.session.rollout import StoredSession
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Question
from ferrule.tools.tasks import run_blocking

TICK = 0.5
"""Seconds between two looks at the clock, and at questions that were withdrawn."""
TWICE = 2.0
"""Seconds within which a second Ctrl-C quits, and a second Esc goes back."""
THINKING = "Thinking"
PLACEHOLDER = "Say what to do; Enter sends, / lists commands"
PROMPTS = "/prompts:"


class TerminalApp(App[int], inherit_bindings=False):
    """One session on the screen."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "interrupt", id="interrupt"),
        Binding("ctrl+c", "leave", "quit", priority=True, id="quit"),
        Binding("ctrl+d", "end", "quit", id="end"),
        Binding("ctrl+o", "unfold", "unfold", priority=True, id="unfold"),
        Binding("ctrl+g", "edit", "editor", priority=True, id="edit"),
        Binding("pageup", "scroll(-1)", "up", priority=True, id="page_up"),
        Binding("pagedown", "scroll(1)", "down", priority=True, id="page_down"),
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
        self.suggestions = Suggestions()
        home, cwd = opening.settings.home, opening.settings.cwd
        self.composer = Composer(PLACEHOLDER, self.suggestions, cwd, home, lambda: suggested(home))
        self.status = StatusLine()
        self.plan = PlanView()
        self.conversation = Conversation(self.transcript.add, self.transcript.touch)
        self.talk = Talk(opening, self.show_event)
        self.mcp_states: dict[str, str] = {}
        self._panel: Panel | None = None
        self._answered: set[str] = set()
        self._command: Worker[None] | None = None
        self._last_leave = self._last_escape = float("-inf")

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield self.transcript
        yield self.plan
        yield self.suggestions
        with Horizontal(id="write"):
            yield Static("›", id="mark")
            yield self.composer
        yield self.status

    def on_mount(self) -> None:
        """Show the screen first; the session opens meanwhile."""
        self.composer.focus()
        self.status.do("Starting")
        self._tell_terminal(signals.SAVE_TITLE)
        self.set_interval(TICK, self._tick)
        self.run_worker(self._begin(), group="session")

    def on_unmount(self) -> None:
        """Leave the window as it was."""
        self._tell_terminal(signals.RESTORE_TITLE)

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
        await self._show_session(opening.stored)
        for text in warnings:
            self.conversation.warn(text)
        await self.talk.work()

    async def _show_session(self, stored: StoredSession | None) -> None:
        """Show which session is open now, and what was said in it."""
        self._show_about()
        self.conversation.begin(self.talk.model_name, self.talk.settings.cwd, await self.talk.confinement())
        if stored is not None:
            cells, self.conversation.last_answer = await run_blocking(stored_cells, stored)
            self.transcript.fill(cells)
        self.status.do("")
        self._show_title()

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        """Say it, or do what a command says."""
        if event.text.startswith("/") and not event.text.startswith(PROMPTS):
            self.run_worker(run_command(self, event.text), group="commands")
        elif event.text.startswith("!") and event.text[1:].strip():
            self._command = self.run_worker(self.run_command(event.text[1:].strip()), group="commands")
        else:
            self._say(event.text, event.parts)

    def _say(self, text: str, parts: Words) -> None:
        if text.startswith(PROMPTS):
            try:
                parts = as_words(expand_prompt(text, self.talk.settings.home))
            except FerruleError as error:
                self.note(str(error))
                return
        self.conversation.say(text)
        self.transcript.follows = True
        if self.talk.say(parts):
            self.run_worker(self.talk.work(), group="turns")

    def send(self, text: str) -> None:
        """Do as if the user had sent this."""
        self._close_panel()
        self.post_message(Composer.Submitted(text, as_words(text)))

    async def run_command(self, script: str, *, told: bool = True) -> None:
        """Run a command of the user, confined as the model's are."""
        self.status.do(f"! {script}")
        try:
            output = await self.talk.run_command(script)
        except FerruleError as error:
            self.note(str(error))
            return
        finally:
            self.status.do("")
        if output.success is False:
            self.note(output.text)
        if told:
            self.talk.tell_model(f"The user has run a command here:\n$ {script}\n{output.text}")

    def show_event(self, event: Event | ToolEvent) -> None:
        """Show an event of the session. Quick: it stands in the session's way."""
        if isinstance(event, Question):
            self._look_for_questions()
            return
        self.conversation.on_event(event)
        match event:
            case TurnStarted():
                self.status.do(THINKING)
                self._show_title()
            case ItemUpdated(kind="text"):
                self.status.do("Answering")
            case ItemStarted(item=item) if (call := read_call(item.view)) is not None:
                self.status.do(call_line(call).split("\n")[0])
            case PlanUpdate(plan=plan):
                self.plan.show(plan)
            case TokenCount():
                self._show_about()
            case McpServerStatus(server=server, status=status, message=message):
                self.mcp_states[server] = f"{status} {message}".strip()
            case TurnAborted():
                self.conversation.abort()
                self._end_turn()
            case TurnCompleted() | TurnFailed():
                self._end_turn()
                self._notify_user("Ferrule is done" if isinstance(event, TurnCompleted) else "Ferrule has failed")

    def _end_turn(self) -> None:
        self.status.do("")
        self._show_about()
        self._show_title(idle=True)

    def _show_about(self) -> None:
        session = self.talk.session
        if session is not None:
            self.status.about = about(session.settings, session.model_name, session.spent.total_tokens)
            self.status.refresh()

    def _show_title(self, *, idle: bool = False) -> None:
        mark = "? " if self._panel is not None and self._panel.request_id else "… " if self.status.doing else ""
        folder = os.path.basename(self.talk.settings.cwd) or "/"
        self._tell_terminal(signals.title(f"{'' if idle else mark}ferrule · {folder}"))

    def _notify_user(self, text: str) -> None:
        """Tell a user who looks elsewhere."""
        if not self.app_focus:
            self._tell_terminal(signals.notification(text))

    def _tell_terminal(self, sequence: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    def _tick(self) -> None:
        self.transcript.tick()
        if self.status.doing:
            self.status.refresh()
        self._look_for_questions()

    def _look_for_questions(self) -> None:
        """Put the oldest question in the composer's place; take away the dialog of one that no longer waits."""
        waiting = [one for one in self.talk.questions() if one.request_id not in self._answered]
        shown = None if self._panel is None else self._panel.request_id
        if shown is not None and (waiting if not shown else all(one.request_id != shown for one in waiting)):
            self._close_panel()
        if self._panel is None and waiting:
            self._open_panel(panel_for(waiting[0]))
            self._show_title()
            self._notify_user("Ferrule asks you something")
        if self._panel is not None and waiting and self._panel.waiting != len(waiting):
            self._panel.waiting = len(waiting)
            self._panel.refresh(layout=True)

    def _open_panel(self, panel: Panel) -> None:
        self._close_panel()
        self._panel = panel
        self.query_one("#write").display = False
        self.suggestions.show(())
        self.mount(panel, before=self.status)
        panel.focus()

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
        self._show_title()

    def note(self, text: str) -> None:
        """See `Desk`."""
        self.conversation.note(text)

    def pick(self, title: str, items: Sequence[Item], taken: Callable[[str], object]) -> None:
        """See `Desk`."""
        self._open_panel(Picker(title, items, taken))

    @property
    def last_answer(self) -> str:
        """See `Desk`."""
        return self.conversation.last_answer

    @property
    def themes(self) -> list[str]:
        """See `Desk`."""
        return ["terminal", *sorted(self.available_themes)]

    def set_theme(self, name: str) -> None:
        """See `Desk`. `terminal` are the terminal's own colours."""
        if name not in self.themes:
            self.note(f"there is no theme {name}; /theme lists those there are")
            return
        self.ansi_color = name == "terminal"
        if name != "terminal":
            self.theme = name

    def copy(self, text: str) -> None:
        """See `Desk`."""
        self.copy_to_clipboard(text)

    def leave(self) -> None:
        """See `Desk`."""
        self.exit(0)

    async def begin_anew(self) -> None:
        """See `Desk`."""
        await self.talk.open(self.talk.settings)
        await self._show_anew(None)

    async def go_on_with(self, session_id: str) -> None:
        """See `Desk`."""
        await self._show_anew(await self.talk.resume(session_id))

    async def change(self, **settings: object) -> None:
        """See `Desk`."""
        now = self.talk.settings
        if isinstance(model := settings.pop("model", None), str):
            settings["model"] = msgspec.structs.replace(now.model, model=model)
        await self.talk.change(msgspec.structs.replace(now, **settings))
        self._show_about()
        self.note(f"now {self.status.about}")

    async def _show_anew(self, stored: StoredSession | None) -> None:
        self.transcript.clear()
        self.conversation = Conversation(self.transcript.add, self.transcript.touch)
        self.plan.show(())
        await self._show_session(stored)

    def action_interrupt(self) -> None:
        """End what runs; never the program. Twice where nothing runs: go back to an earlier message."""
        if self._panel is not None and not self._panel.request_id:
            self._close_panel()
            return
        if self.talk.interrupt():
            self._close_panel()
            self._last_escape = float("-inf")
            return
        if self._command is not None and self._command.is_running:
            self._command.cancel()
            return
        now = time.monotonic()
        if now - self._last_escape < TWICE and not self.composer.text:
            self._pick_turn()
            now = float("-inf")
        self._last_escape = now

    def _pick_turn(self) -> None:
        said = [(number, text) for number, text in enumerate(self.talk.said, 1) if text]
        items = [Item(" ".join(text.split()), str(number), f"turn {number}") for number, text in reversed(said)]
        if items:
            self.pick("Go back to", items, self._go_back)

    def _go_back(self, number: str) -> None:
        self._close_panel()
        self.run_worker(self._before_turn(int(number)), group="commands")

    async def _before_turn(self, number: int) -> None:
        text = self.talk.said[number - 1]
        try:
            stored = await self.talk.before_turn(number)
        except FerruleError as error:
            self.note(str(error))
            return
        await self._show_anew(stored)
        self.composer.load_text(text)
        self.composer.move_cursor(self.composer.document.end)

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

    def action_edit(self) -> None:
        """Write the message in the user's editor."""
        self.run_worker(self._edit(), group="commands")

    async def _edit(self) -> None:
        try:
            argv = editor_command(self.talk.settings)
            with self.suspend():
                text = await run_blocking(edited, argv, self.composer.text)
        except SuspendNotSupported:
            self.note("this terminal cannot be lent to an editor")
        except FerruleError as error:
            self.note(str(error))
        else:
            self.composer.load_text(text)
            self.composer.move_cursor(self.composer.document.end)
        self.refresh(layout=True)


def panel_for(question: Question) -> Panel:
    """Return the dialog of a question."""
    if isinstance(question, ExecApproval):
        return ApprovalPanel(question)
    return FormPanel(question.request_id, form_of(question))
