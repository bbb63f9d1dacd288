"""What acts on one tab: pointer, keyboard, and the keys that a browser's own window would take."""

import asyncio

from ferrule.containers.screen import inputs
from ferrule.containers.screen.actions import Click, DoubleClick, Drag, Keypress, Move, ScreenAction, Scroll, Type, Wait
from ferrule.containers.screen.browser import Browser, Tab
from ferrule.containers.screen.inputs import Command
from ferrule.containers.screen.keys import read_keys
from ferrule.containers.screen.notes import Notes
from ferrule.protocol.json_text import JsonObject

WAIT_S = 1.0
"""As long as one `wait` takes: models repeat it."""
DRAG = "Input.dispatchDragEvent"
NOT_SENT = "The page came from a form, which was not sent again: its address was opened."


class Hands:
    """Acts on the tabs of one browser."""

    def __init__(self, browser: Browser, notes: Notes) -> None:
        self._browser = browser
        self._devtools = browser.devtools
        self._notes = notes

    async def do(self, tab: Tab, action: ScreenAction) -> None:
        """Do something. Raises `BadAction`, `Refusal` if the tab closes meanwhile, and `TimeoutError`."""
        match action:
            case Click(button="back" | "forward"):
                await self._travel(tab, -1 if action.button == "back" else 1)
            case Click() | DoubleClick():
                await self._send(tab, *inputs.clicking(action))
            case Move():
                await self._send(tab, *inputs.moving(action))
            case Scroll():
                await self._send(tab, *inputs.scrolling(action))
            case Type():
                await self._send(tab, *inputs.typing(action))
            case Keypress():
                await self._press(tab, action)
            case Drag():
                await self._drag(tab, action)
            case Wait():
                await asyncio.sleep(WAIT_S)

    async def _send(self, tab: Tab, *commands: Command) -> None:
        await self._devtools.calls(commands, tab.session)

    async def _press(self, tab: Tab, action: Keypress) -> None:
        match "+".join(key.key.lower() for key in read_keys(action.keys)):
            case "alt+arrowleft":
                await self._travel(tab, -1)
            case "alt+arrowright":
                await self._travel(tab, 1)
            case "f5" | "control+r":
                await self._load_anew(tab)
            case "control+w":
                await self._browser.close_tab(tab)
            case "control+t":
                await self._browser.open_tab()
            case "control+tab":
                await self._browser.show_next(1)
            case "control+shift+tab":
                await self._browser.show_next(-1)
            case _:
                await self._send(tab, *inputs.keypress(action))

    async def _drag(self, tab: Tab, action: Drag) -> None:
        """Drag; what the page gives away to be dropped is carried along from then on."""
        held = read_keys(action.keys or ())
        tab.dragged.clear()
        await self._send(tab, *inputs.drag_start(action, held))
        entered = False
        for point in inputs.steps(action.path):
            if not tab.dragged:
                await self._send(tab, inputs.drag_move(point, held))
            if tab.dragged:
                kind = "dragOver" if entered else "dragEnter"
                await self._send(tab, (DRAG, {"type": kind, "x": point.x, "y": point.y, "data": tab.dragged[0]}))
                entered = True
        if entered:
            last = action.path[-1]
            for kind in ("dragOver", "drop"):
                await self._send(tab, (DRAG, {"type": kind, "x": last.x, "y": last.y, "data": tab.dragged[0]}))
        await self._send(tab, *inputs.drag_end(action, held))

    async def _load_anew(self, tab: Tab) -> None:
        """Load a page anew, without sending a form again that it may have come from."""
        entry = await self._entry(tab, 0)
        if entry is not None and entry["transitionType"] == "form_submit":
            self._notes.add(NOT_SENT)
            await self._devtools.call("Page.navigate", {"url": tab.url}, tab.session)
        else:
            await self._devtools.call("Page.reload", {}, tab.session)

    async def _entry(self, tab: Tab, step: int) -> JsonObject | None:
        """Return an entry of a tab's history, so many steps from the present one; None if there is none."""
        history = await self._devtools.call("Page.getNavigationHistory", {}, tab.session)
        entries, index = history["entries"], history["currentIndex"]
        assert isinstance(entries, list) and isinstance(index, int)
        if not 0 <= index + step < len(entries):
            return None
        entry = entries[index + step]
        assert isinstance(entry, dict)
        return entry

    async def _travel(self, tab: Tab, step: int) -> None:
        """Go through the history of a tab."""
        if (entry := await self._entry(tab, step)) is None:
            self._notes.add(f"There is no page to go {'back' if step < 0 else 'forward'} to.")
            return
        await self._devtools.call("Page.navigateToHistoryEntry", {"entryId": entry["id"]}, tab.session)
