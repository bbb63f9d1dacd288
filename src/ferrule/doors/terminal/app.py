"""The screen of the terminal interface: what stands where, and the keys.

It imports little, so that it is there at once; the desk, with all that a session needs, is loaded behind it.
"""

import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Static

from ferrule.doors.terminal.composer import Composer
from ferrule.doors.terminal.driver import LastingDriver, Outlet
from ferrule.doors.terminal.images import Picture, Pictures, can_draw, can_place
from ferrule.doors.terminal.inline import InlinePictures
from ferrule.doors.terminal.panel import Panel
from ferrule.doors.terminal.plan import PlanView
from ferrule.doors.terminal.signals import RESTORE_TITLE, SAVE_TITLE
from ferrule.doors.terminal.status import StatusLine
from ferrule.doors.terminal.suggestions import Suggestions
from ferrule.doors.terminal.transcript import Transcript
from ferrule.protocol.errors import FerruleError
from ferrule.tools.tasks import run_blocking

if TYPE_CHECKING:
    from ferrule.doors.terminal.desk import Desk
    from ferrule.session.talk import Opening

DESK = "ferrule.doors.terminal.desk"
TICK = 0.5
"""Seconds between two looks at the clock, and at questions that were withdrawn."""
TWICE = 2.0
"""Seconds within which a second Ctrl-C quits, and a second Esc goes back."""
PLACEHOLDER = "Say what to do; Enter sends, / lists commands"
TERMINAL_THEME = "terminal"
"""The terminal's own colours."""


class TerminalApp(App[int], inherit_bindings=False):
    """One session on the screen. `load` reads the configuration, in a thread, once the screen stands."""

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
    Screen { layout: vertical; overflow: hidden; background: ansi_default; color: ansi_default; }
    .themed { background: $background; color: $foreground; }
    #write { height: auto; max-height: 8; padding: 0 1; }
    #mark { width: 2; height: 1; }
    """

    def __init__(self, load: "Callable[[], Opening]") -> None:
        super().__init__(ansi_color=True, driver_class=LastingDriver)
        self._load = load
        self.failure: Exception | None = None
        """Why the session could not be opened."""
        self.transcript = Transcript()
        self.suggestions = Suggestions()
        self.composer = Composer(PLACEHOLDER, self.suggestions)
        self.status = StatusLine()
        self.plan = PlanView()
        self.pictures = self._make_pictures()
        self._resting: Timer | None = None
        """Ends when the screen has rested and images are drawn."""
        self.panel: Panel | None = None
        """The dialog in the composer's place."""
        self.desk: Desk | None = None
        self._said: list[Composer.Submitted] = []
        """What was sent before the session was open."""
        self._last_leave = self._last_escape = float("-inf")

    def _make_pictures(self) -> Pictures:
        if can_place(os.environ, self.console.color_system):
            return Pictures(self.tell_terminal)
        return InlinePictures(self.tell_terminal, self) if can_draw(os.environ) else Pictures(self.tell_terminal, False)

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
        self.app_resume_signal.subscribe(self, lambda _: self.draw_again(images=True))
        self.status.do("Starting")
        self.tell_terminal(SAVE_TITLE)
        self.set_interval(TICK, self._tick)
        self.call_after_refresh(self.start, self._open())

    def on_resize(self) -> None:
        """Draw all again: a terminal that came back to its size within a frame has lost what it showed."""
        self.call_after_refresh(self.draw_again, images=False)

    def on_unmount(self) -> None:
        """Leave the window as it was."""
        self.tell_terminal(RESTORE_TITLE)

    async def _open(self) -> None:
        """Load what a session needs, open it, and say what was sent meanwhile."""
        try:
            opening = await run_blocking(self._load)
            make: Callable[[TerminalApp, Opening], Desk] = (await run_blocking(import_module, DESK)).Desk
            desk = self.desk = make(self, opening)
            await desk.open()
        except FerruleError as error:
            self.failure = error
            self.exit()
            return
        said, self._said = self._said, []
        self._is_open = True
        for one in said:
            desk.submit(one.text, one.parts)

    _is_open = False

    async def close(self) -> None:
        """Close the session."""
        if self.desk is not None:
            await self.desk.talk.close()

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        """Do what was sent; `/quit` at any time."""
        if self.desk is not None and self._is_open:
            self.desk.submit(event.text, event.parts)
        elif event.text == "/quit":
            self.leave()
        else:
            self._said.append(event)

    def on_panel_answered(self, event: Panel.Answered) -> None:
        """Hand an answer over."""
        if self.desk is not None:
            self.desk.answer(event.request_id, event.answer)

    def _tick(self) -> None:
        self.transcript.tick()
        if self.status.doing:
            self.status.refresh()
        if self.desk is not None:
            self.desk.look_for_questions()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """See `Stage`."""
        self.run_worker(self._survived(work), group="work")

    async def _survived(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as fault:  # whatever it is, what was said and is written does not end with it
            if self.desk is None or not self._is_open:
                raise
            self.desk.tell_fault(fault)

    def open_panel(self, panel: Panel) -> None:
        """See `Stage`."""
        self.close_panel()
        self.panel = panel
        self.query_one("#write").display = self.plan.display = False
        self.suggestions.show(())
        self.mount(panel, before=self.status)
        panel.focus()
        if panel.request_id and self.composer.text:
            panel.wait_for_pause()

    def close_panel(self) -> None:
        """See `Stage`."""
        if self.panel is not None:
            self.panel.remove()
            self.panel = None
            self.query_one("#write").display = self.plan.display = True
            self.composer.focus()

    def tell_terminal(self, sequence: str) -> None:
        """See `Stage`."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    @property
    def is_looked_at(self) -> bool:
        """See `Stage`."""
        return self.app_focus

    @property
    def themes(self) -> list[str]:
        """See `Stage`."""
        return [TERMINAL_THEME, *sorted(self.available_themes)]

    def set_keys(self, keys: Mapping[str, str]) -> list[str]:
        """See `Stage`."""
        known = {binding.id for binding in self.BINDINGS if isinstance(binding, Binding)}
        self.set_keymap({name: key for name, key in keys.items() if name in known})
        return [name for name in keys if name not in known]

    def set_theme(self, name: str) -> bool:
        """See `Stage`."""
        if name not in self.themes:
            return False
        self.ansi_color = name == TERMINAL_THEME
        if name != TERMINAL_THEME:
            self.theme = name
        self.screen.set_class(name != TERMINAL_THEME, "themed")
        return True

    def copy(self, text: str) -> None:
        """See `Stage`."""
        self.copy_to_clipboard(text)

    def leave(self) -> None:
        """See `Stage`."""
        self.exit(0)

    async def lend(self, work: Callable[[], str]) -> str | None:
        """See `Stage`."""
        failure: Exception | None = None
        text = None
        before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the editor's, while it has the terminal
        try:
            with self.suspend():  # it takes the terminal back only where nothing is raised inside
                try:
                    text = await run_blocking(work)
                except FerruleError as error:
                    failure = error
        except SuspendNotSupported:
            return None
        finally:
            signal.signal(signal.SIGINT, before)
        self.draw_again(images=True)
        if failure is not None:
            raise failure
        return text

    def withdraw(self) -> None:
        """See `Drawn`."""
        self.pictures.withdraw()

    def draw_again(self, images: bool) -> None:
        """See `Drawn`."""
        if images:
            self.pictures.send_again()
        self.pictures.drawn_over()
        self.refresh(layout=True)

    def post_display_hook(self) -> None:
        """Look at images after a frame."""
        self.pictures.after_frame()

    @property
    def image_rows(self) -> Mapping[int, tuple[Picture, int]]:
        """See `Canvas`."""
        return self.transcript.image_rows

    @property
    def image_column(self) -> int:
        """See `Canvas`."""
        return self.transcript.content_region.x

    @property
    def is_behind(self) -> bool:
        """See `Canvas`."""
        return self._outlet is not None and self._outlet.is_behind

    @property
    def image_seconds(self) -> float:
        """See `Canvas`."""
        return 0.0 if self._outlet is None else self._outlet.image_seconds

    @property
    def _outlet(self) -> Outlet | None:
        return self._driver.outlet if isinstance(self._driver, LastingDriver) else None

    def refresh_images(self) -> None:
        """See `Canvas`."""
        self.transcript.refresh()

    def after_rest(self, seconds: float, do: Callable[[], None]) -> None:
        """See `Canvas`."""
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(seconds, do)

    def action_interrupt(self) -> None:
        """End what runs; never the program. Twice where nothing runs: go back to an earlier message."""
        if self.panel is not None and not self.panel.request_id:
            self.close_panel()
        elif self.desk is not None and self.desk.interrupt():
            self.close_panel()
            self._last_escape = float("-inf")
        else:
            now = time.monotonic()
            twice = now - self._last_escape < TWICE and not self.composer.text
            self._last_escape = float("-inf") if twice else now
            if twice and self.desk is not None:
                self.desk.pick_turn()

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
        if self.desk is not None:
            self.start(self.desk.edit())
