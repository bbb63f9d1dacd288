"""The session's side of the screen: what happens is shown, what the user says or answers is done."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ferrule.doors.terminal import signals
from ferrule.doors.terminal.clipboard import clipboard_image
from ferrule.doors.terminal.commands import run_command, suggested
from ferrule.doors.terminal.completion import Files
from ferrule.doors.terminal.composer import Composer, Helper
from ferrule.doors.terminal.conversation import Conversation
from ferrule.doors.terminal.dialogs import ApprovalPanel
from ferrule.doors.terminal.editor import edited, editor_command
from ferrule.doors.terminal.forms import FormPanel, form_of
from ferrule.doors.terminal.history import PromptHistory
from ferrule.doors.terminal.images import Pictures
from ferrule.doors.terminal.panel import Panel
from ferrule.doors.terminal.pickers import Item, Picker
from ferrule.doors.terminal.plan import PlanView
from ferrule.doors.terminal.status import StatusLine, about
from ferrule.doors.terminal.stored import stored_cells
from ferrule.doors.terminal.transcript import Transcript
from ferrule.model.refusals import DOES_NOT_FIT
from ferrule.prompts import expand_prompt
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
    WarningEvent,
)
from ferrule.protocol.settings import TuiSettings
from ferrule.rendering.calls import call_line, read_call
from ferrule.session.compaction import CONTEXT_FULL
from ferrule.session.rollout import StoredSession
from ferrule.session.talk import Opening, Talk, Words, as_words
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, Question
from ferrule.tools.tasks import run_blocking

THINKING = "Thinking"
PROMPTS = "/prompts:"
WAY_BACK = "Esc twice goes back to before a message that is too long; /new begins a session"
LONGEST_LABEL = 500
"""Characters of an earlier message by which it is found: more than a row shows."""


class Stage(Protocol):
    """The screen, as the desk knows it."""

    @property
    def transcript(self) -> Transcript: ...
    @property
    def plan(self) -> PlanView: ...
    @property
    def status(self) -> StatusLine: ...
    @property
    def composer(self) -> Composer: ...
    @property
    def panel(self) -> Panel | None: ...
    @property
    def pictures(self) -> Pictures: ...
    @property
    def themes(self) -> list[str]: ...
    @property
    def is_looked_at(self) -> bool: ...

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something run beside the screen; a fault of it is told, and the program goes on."""

    def open_panel(self, panel: Panel) -> None:
        """Put a dialog in the composer's place."""

    def close_panel(self) -> None:
        """Take it away."""

    def tell_terminal(self, sequence: str) -> None:
        """Write a sequence to the terminal itself."""

    def set_keys(self, keys: Mapping[str, str]) -> list[str]:
        """Take other keys for what the screen does; return the names that it does not know."""
        ...

    def set_theme(self, name: str) -> bool:
        """Change the colours; False where there are none of this name."""
        ...

    def copy(self, text: str) -> None:
        """Put a text on the clipboard."""

    def leave(self) -> None:
        """End the program."""

    async def lend(self, work: Callable[[], str]) -> str | None:
        """Lend the terminal to a program, in a thread; None where that cannot be."""
        ...


class Desk:
    """Shows one session on the stage, and does what the user wants of it."""

    def __init__(self, stage: Stage, opening: Opening) -> None:
        self._stage = stage
        self._opening = opening
        self.conversation = Conversation(stage.transcript.add, stage.transcript.touch, stage.pictures.place)
        self.talk = Talk(opening, self.show_event)
        self._answered: set[str] = set()
        self._by_hand: list[str] = []
        """Commands of the user that run."""
        self._doing = ""
        self._damage = ""
        """What the stored session lacks."""
        self._dress(opening.settings.tui)
        home = opening.settings.home
        files, past = Files(opening.settings.cwd), PromptHistory(home)
        stage.composer.helper = Helper(
            past, files, lambda: suggested(home), lambda: clipboard_image(self.talk.settings), self.note
        )

    def _dress(self, tui: TuiSettings) -> None:
        """Set the user's keys and colours; tell what is not there."""
        for name in self._stage.set_keys(tui.keys):
            self.conversation.warn(f"[tui.keys]: there is nothing called {name}")
        if tui.theme is not None:
            self.set_theme(tui.theme)

    async def open(self) -> None:
        """Open the session. Raises what `open_session` does."""
        opening, settings = self._opening, self._opening.settings
        warnings = opening.warnings
        if opening.sources is not None:
            loaded = await self.talk.confirmed(opening.sources)
            settings, warnings = loaded.settings, loaded.warnings
        await self.talk.open(settings, opening.stored)
        await self._show_session(opening.stored)
        for text in warnings:
            self.conversation.warn(text)

    async def _show_session(self, stored: StoredSession | None) -> None:
        """Show which session is open now, and what was said in it."""
        self._show_about()
        self.conversation.begin(self.talk.model_name, self.talk.settings.cwd, await self.talk.confinement())
        if stored is not None:
            cells, before = await run_blocking(stored_cells, stored)
            self.conversation.last_answer = before.last_answer
            self._stage.transcript.fill(cells)
            self._stage.plan.show(before.plan)
            self._damage = stored.damage
            if self._damage:
                self.conversation.warn(self._damage)
        self.do("")
        self._show_title()

    def submit(self, text: str, parts: Words) -> None:
        """Say what the user has sent, or do what a command says."""
        if text.startswith("/") and not text.startswith(PROMPTS):
            self._stage.start(run_command(self, text))
        elif text.startswith("!") and text[1:].strip():
            self._stage.start(self._run_by_hand(text[1:].strip()))
        else:
            self._say(text, parts)

    def _say(self, text: str, parts: Words) -> None:
        if text.startswith(PROMPTS):
            try:
                parts = as_words(expand_prompt(text, self.talk.settings.home))
            except FerruleError as error:
                self.note(str(error))
                return
        self.conversation.say(text, parts)
        self._stage.transcript.follows = True
        try:
            must_work = self.talk.say(parts)
        except FerruleError as error:
            self.note(str(error))
            return
        if must_work:
            self._stage.start(self.talk.work())

    def send(self, text: str) -> None:
        """See `Target`."""
        self._stage.close_panel()
        self.submit(text, as_words(text))

    async def _run_by_hand(self, script: str) -> None:
        try:
            await self.run_command(script)
        except FerruleError as error:
            self.note(str(error))

    async def run_command(self, script: str, *, told: bool = True) -> None:
        """See `Target`."""
        self._by_hand.append(script)
        self.do(self._doing)
        try:
            refused = await self.talk.run_command(script, told=told)
        finally:
            self._by_hand.remove(script)
            self.do(self._doing)
        if refused:
            self.note(refused)

    def do(self, what: str) -> None:
        """See `Target`. Of a session that does nothing, which command of the user runs."""
        self._doing = what
        self._stage.status.do(what or (f"! {self._by_hand[-1]}" if self._by_hand else ""))

    def show_event(self, event: Event | ToolEvent) -> None:
        """Show an event of the session. Quick: it stands in the session's way."""
        if isinstance(event, WarningEvent) and event.message == self._damage:
            return  # it was told when the session was shown
        self.conversation.on_event(event)
        if isinstance(event, Question):
            self.look_for_questions()
            return
        match event:
            case TurnStarted():
                self.do(THINKING)
                self._show_title()
            case ItemUpdated(kind="text"):
                self.do("Answering")
            case ItemStarted(item=item) if (call := read_call(item.view)) is not None:
                self.do(call_line(call).split("\n")[0])
            case PlanUpdate(plan=plan):
                self._stage.plan.show(plan)
            case TokenCount():
                self._show_about()
            case TurnAborted():
                self.conversation.abort()
                self._end_turn()
            case TurnCompleted() | TurnFailed():
                if isinstance(event, TurnFailed) and event.message.startswith((CONTEXT_FULL, DOES_NOT_FIT)):
                    self.note(WAY_BACK)
                self._end_turn()
                self._notify_user("Ferrule is done" if isinstance(event, TurnCompleted) else "Ferrule has failed")

    def _end_turn(self) -> None:
        self.do("")
        self._show_about()
        self._show_title(idle=True)

    def _show_about(self) -> None:
        session = self.talk.session
        if session is not None:
            self._stage.status.about = about(session.settings, session.model_name, session.spent.total_tokens)
            self._stage.status.refresh()

    def _show_title(self, *, idle: bool = False) -> None:
        asked = self._stage.panel is not None and self._stage.panel.request_id
        mark = "? " if asked else "… " if self._stage.status.doing else ""
        folder = os.path.basename(self.talk.settings.cwd) or "/"
        self._stage.tell_terminal(signals.title(f"{'' if idle else mark}ferrule · {folder}"))

    def _notify_user(self, text: str) -> None:
        """Tell a user who looks elsewhere."""
        if self.talk.settings.tui.notifications and not self._stage.is_looked_at:
            self._stage.tell_terminal(signals.notification(text))

    def look_for_questions(self) -> None:
        """Put the oldest question in the composer's place; take away the dialog of one that no longer waits."""
        waiting = [one for one in self.talk.questions() if one.request_id not in self._answered]
        before = self._stage.panel
        shown = None if before is None else before.request_id
        if shown is not None and (waiting if not shown else all(one.request_id != shown for one in waiting)):
            self._stage.close_panel()
        if self._stage.panel is None and waiting:
            panel = panel_for(waiting[0])
            self._stage.open_panel(panel)
            if before is not None and before.is_typed:
                panel.wait_for_pause()
            self._show_title()
            self._notify_user("Ferrule asks you something")
        if self._stage.panel is not None and waiting and self._stage.panel.waiting != len(waiting):
            self._stage.panel.waiting = len(waiting)
            self._stage.panel.refresh(layout=True)

    def answer(self, request_id: str, answer: Answer) -> None:
        """Hand an answer over."""
        self._answered.add(request_id)
        self.talk.answer(request_id, answer)
        self._stage.close_panel()
        self.look_for_questions()
        self._show_title()

    def tell_fault(self, fault: Exception) -> None:
        """Show a fault of Ferrule itself, with its place for those who unfold it."""
        self.conversation.tell_fault(fault)
        if not self.talk.is_working:
            self.do("")

    def note(self, text: str) -> None:
        """See `Target`."""
        self.conversation.note(text)

    def pick(self, title: str, items: Sequence[Item], taken: Callable[[str], object]) -> None:
        """See `Target`."""
        self._stage.open_panel(Picker(title, items, taken))

    @property
    def last_answer(self) -> str:
        """See `Target`."""
        return self.conversation.last_answer

    @property
    def themes(self) -> list[str]:
        """See `Target`."""
        return self._stage.themes

    def set_theme(self, name: str) -> None:
        """See `Target`."""
        if not self._stage.set_theme(name):
            self.note(f"there is no theme {name}; /theme lists those there are")

    def copy(self, text: str) -> None:
        """See `Target`."""
        self._stage.copy(text)

    def leave(self) -> None:
        """See `Target`."""
        self._stage.leave()

    async def begin_anew(self) -> None:
        """See `Target`."""
        await self.talk.open(self.talk.settings)
        await self._show_anew(None)

    async def go_on_with(self, session_id: str) -> None:
        """See `Target`."""
        await self._show_anew(await self.talk.resume(session_id))

    async def change(self, **settings: object) -> None:
        """See `Target`."""
        now = self.talk.settings
        if isinstance(model := settings.pop("model", None), str):
            settings["model"] = msgspec.structs.replace(now.model, model=model)
        await self.talk.change(msgspec.structs.replace(now, **settings))
        self._show_about()
        self.note(f"now {self._stage.status.about}")

    async def _show_anew(self, stored: StoredSession | None) -> None:
        stage = self._stage
        stage.transcript.clear()
        stage.pictures.clear()
        self.conversation = Conversation(stage.transcript.add, stage.transcript.touch, stage.pictures.place)
        stage.plan.show(())
        await self._show_session(stored)

    def interrupt(self) -> bool:
        """End the turn, or the user's own commands. Return False where nothing runs."""
        return self.talk.interrupt()

    def pick_turn(self) -> None:
        """Let the user choose an earlier message to go back to."""
        said = [(number, text) for number, text in enumerate(self.talk.said, 1) if text]
        items = [
            Item(" ".join(text[:LONGEST_LABEL].split()), str(number), f"turn {number}")
            for number, text in reversed(said)
        ]
        if items and not self.talk.is_working:
            self.pick("Go back to", items, self._go_back)

    def _go_back(self, number: str) -> None:
        self._stage.close_panel()
        self._stage.start(self._before_turn(int(number)))

    async def _before_turn(self, number: int) -> None:
        text = self.talk.said[number - 1]
        try:
            stored = await self.talk.before_turn(number)
        except FerruleError as error:
            self.note(str(error))
            return
        await self._show_anew(stored)
        self._stage.composer.write(text)

    async def edit(self) -> None:
        """Let the user's editor change what is written."""
        composer = self._stage.composer
        try:
            argv = editor_command(self.talk.settings)
            text = await self._stage.lend(lambda: edited(argv, composer.text))
        except FerruleError as error:
            self.note(str(error))
            return
        if text is None:
            self.note("this terminal cannot be lent to an editor")
            return
        composer.write(text)


def panel_for(question: Question) -> Panel:
    """Return the dialog of a question."""
    if isinstance(question, ExecApproval):
        return ApprovalPanel(question)
    return FormPanel(question.request_id, form_of(question))
