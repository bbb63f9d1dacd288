"""A screen: what is seen, what is done, and what has to be told."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self, TypeVar

from ferrule.containers.container import Container
from ferrule.containers.host import ContainerSettings
from ferrule.containers.local import LocalHost
from ferrule.containers.screen import inputs
from ferrule.containers.screen.actions import (
    Click,
    Coordinate,
    DoubleClick,
    Drag,
    Keypress,
    Move,
    ScreenAction,
    Screenshot,
    Scroll,
    Type,
    Wait,
)
from ferrule.containers.screen.browser import Browser, OnNavigation, Tab
from ferrule.containers.screen.devtools import Refusal
from ferrule.containers.screen.errors import BadAction, BrowserLost, ScreenError
from ferrule.containers.screen.keys import read_keys
from ferrule.containers.screen.network import FLAGS, ScreenNetwork, ScreenWay
from ferrule.containers.screen.notes import Notes
from ferrule.containers.screen.program import find_program
from ferrule.containers.screen.settings import ScreenSettings, read_address
from ferrule.process.kernel import OWN_PIPES
from ferrule.process.launcher import LaunchError, Limits, Pipes
from ferrule.protocol.json_text import JsonObject
from ferrule.sandbox.linux.root import DATA

MEMORY_BYTES = 3 << 30
"""Of the browser and all its pages: a page like a map or a mail program takes half a gigabyte."""
DISK_BYTES = 4 << 30
"""Of its profile and downloads."""
LOAD_S = 10.0
"""A page that is not loaded by then is shown as far as it is."""
BEGIN_S = 1.0
"""From a page's wish for another one until that is being loaded: milliseconds."""
FRAME_S = 1.0
"""A page that draws draws within milliseconds; one that does not, such as one without a script's time, is not awaited.
"""
WAIT_S = 1.0
"""As long as one `wait` takes: models repeat it."""
PICTURE_S = 10.0
"""Until a picture is taken; a page that takes longer hangs."""
TRIES = 3
"""Of a picture, while tabs close and the browser is started again."""
RESTARTED = "The browser had ended and was started again: the page was loaded anew, what was typed is gone."
HANGS = "The page {} did not answer for {:g} s, and was closed."
LOADING = "The page is still loading after {:g} s: this is what there is."
OUTSIDE = "({:g}, {:g}) lies outside of the screen, which is {} x {} pixels: nothing was done."
T = TypeVar("T")


class Screen:
    """A browser's page as pictures, and hands for it. Nothing runs before the first use. Use it as `async with`, and do
    one thing at a time."""

    def __init__(
        self, settings: ScreenSettings, way_out: ScreenWay, on_navigation: OnNavigation | None, host: LocalHost
    ) -> None:
        self._settings = settings
        self._way_out = way_out
        self._on_navigation = on_navigation
        self._host = host
        self._container: Container | None = None
        self._browser: Browser | None = None
        self._notes = Notes()
        self._url: str | None = settings.start_url
        self._lock = asyncio.Lock()

    @classmethod
    def open(
        cls,
        settings: ScreenSettings | None = None,
        network: ScreenNetwork | None = None,
        *,
        on_navigation: OnNavigation | None = None,
    ) -> Self:
        """Make a screen. `on_navigation` is asked about each address before a page is loaded from it. Raises
        `UsageError` for settings that cannot be, and `ContainerError` where there can be no container."""
        chosen = (settings or ScreenSettings()).checked()
        way_out = (network or ScreenNetwork()).way_out()
        return cls(chosen, way_out, on_navigation, LocalHost.open())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    @property
    def settings(self) -> ScreenSettings:
        return self._settings

    @property
    def current_url(self) -> str:
        """The address of the page that is seen."""
        with suppress(ScreenError):
            if self._browser is not None:
                return self._browser.active.url
        return self._url or "about:blank"

    def notices(self) -> tuple[str, ...]:
        """Return, once, what has to be told since the last look: names that were refused, dialogs that were answered,
        downloads, tabs, crashes. Sentences for the model."""
        told = [*self._way_out.egress.take_refusals(), *self._notes.take()]
        if self._container is not None:
            told += self._container.take_notices()
        return tuple(dict.fromkeys(told))

    async def start(self) -> None:
        """Start the browser now, instead of at the first use. Raises `ScreenError`."""
        async with self._lock:
            await self._running()

    async def act(self, action: ScreenAction) -> None:
        """Do something, and wait until its outcome can be seen. Raises `BadAction` for what nobody can do, and
        `ScreenError`."""
        async with self._lock:
            if (outside := self._outside(action)) is not None:
                self._notes.add(outside)
                return
            browser = await self._running()
            browser.count_anew()
            await self._once(browser, lambda tab: self._do(browser, tab, action))
            await self._settle(browser)

    async def open_url(self, url: str) -> None:
        """Open an address, and wait until it is loaded, but not without end. Raises `BadAddress`, `ScreenError`."""
        address = read_address(url)
        async with self._lock:
            browser = await self._running()
            browser.count_anew()
            await self._once(browser, lambda tab: self._load(browser, tab, address))
            await self._settle(browser)

    async def screenshot(self) -> bytes:
        """Return what is seen as a PNG of the display's size. Raises `ScreenError`."""
        async with self._lock:
            return await self._attempted(self._picture)

    async def aclose(self) -> None:
        """End the browser, and remove all that it wrote."""
        browser, self._browser = self._browser, None
        if browser is not None:
            await browser.aclose()
        if self._container is not None:
            await self._container.aclose()
        await self._host.aclose()
        await self._way_out.egress.aclose()

    async def _running(self) -> Browser:
        """Return the browser, which is started if it does not run."""
        if self._browser is not None and not self._browser.devtools.lost:
            return self._browser
        if self._browser is not None:
            self._url = self.current_url
            await self._browser.aclose()
            self._notes.add(RESTARTED)
        browser = self._browser = await self._started()
        if self._url is not None and self._url.startswith("http"):
            await self._load(browser, browser.active, self._url)
            await self._settle(browser)
        return browser

    async def _started(self) -> Browser:
        program = await asyncio.to_thread(find_program, self._settings.browser)
        if self._container is None:
            bounds = ContainerSettings(
                memory_bytes=MEMORY_BYTES, disk_bytes=DISK_BYTES, temporary=True, binds=program.binds
            )
            self._container = await self._host.create(bounds, self._way_out)
        size = f"--window-size={self._settings.display_width},{self._settings.display_height}"
        argv = ("/bin/sh", "-c", OWN_PIPES, "sh", *program.argv, *FLAGS, size, "about:blank")
        await self._container.start()
        self._container.take_notices()
        environment = self._container.environment
        try:
            child = await self._container.launch(argv, environment, DATA, Pipes(stdin=True), Limits())
        except LaunchError as error:
            raise ScreenError(f"the browser cannot be started: {error}") from error
        browser = Browser(child, self._settings, self._notes, self._on_navigation)
        try:
            await browser.start()
        except BaseException:
            await browser.aclose()
            raise
        return browser

    async def _once(self, browser: Browser, do: Callable[[Tab], Awaitable[None]]) -> None:
        """Do something with the tab that is seen, which may close or hang meanwhile: then it is not done again."""
        tab = await browser.ready_tab()
        try:
            await do(tab)
        except TimeoutError:
            await self._given_up(browser, tab)
        except (Refusal, BrowserLost):
            pass  # the picture shows what there is

    async def _given_up(self, browser: Browser, tab: Tab) -> None:
        """Close a tab that hangs."""
        self._notes.add(HANGS.format(tab.url, PICTURE_S))
        await browser.close_tab(tab)

    async def _attempted(self, do: Callable[[Tab], Awaitable[T]]) -> T:
        """Do something with the tab that is seen, again with the next one if that closes or hangs."""
        for _ in range(TRIES):
            browser = await self._running()
            tab = await browser.ready_tab()
            try:
                return await do(tab)
            except TimeoutError:
                await self._given_up(browser, tab)
            except (Refusal, BrowserLost):
                await asyncio.sleep(0)
        raise ScreenError("the browser does not work: it ends again and again")

    def _outside(self, action: ScreenAction) -> str | None:
        """Say that an action lies outside of the screen; None if it does not."""
        if isinstance(action, Drag):
            if not action.path:
                raise BadAction("A drag needs a path: the place where it begins, and those that it leads to.")
            places: list[tuple[Coordinate, Coordinate]] = [(point.x, point.y) for point in action.path]
        elif isinstance(action, Click | DoubleClick | Move | Scroll):
            places = [(action.x, action.y)]
        else:
            return None
        width, height = self._settings.display_width, self._settings.display_height
        for x, y in places:
            if not (0 <= x < width and 0 <= y < height):
                return OUTSIDE.format(x, y, width, height)
        return None

    async def _do(self, browser: Browser, tab: Tab, action: ScreenAction) -> None:
        match action:
            case Click(button="back" | "forward"):
                await self._travel(browser, tab, -1 if action.button == "back" else 1)
            case Click() | DoubleClick():
                await browser.devtools.calls([*inputs.clicking(action)], tab.session)
            case Move():
                await browser.devtools.calls([*inputs.moving(action)], tab.session)
            case Scroll():
                await browser.devtools.calls([*inputs.scrolling(action)], tab.session)
            case Type():
                await browser.devtools.calls([*inputs.typing(action)], tab.session)
            case Keypress():
                await self._press(browser, tab, action)
            case Drag():
                await self._drag(browser, tab, action)
            case Wait():
                await asyncio.sleep(WAIT_S)
            case Screenshot():
                pass

    async def _press(self, browser: Browser, tab: Tab, action: Keypress) -> None:
        """Press keys; those that the window around a page would take are done here."""
        pressed = "+".join(key.key.lower() for key in read_keys(action.keys))
        match pressed:
            case "alt+arrowleft":
                await self._travel(browser, tab, -1)
            case "alt+arrowright":
                await self._travel(browser, tab, 1)
            case "f5" | "control+r":
                await browser.devtools.call("Page.reload", {}, tab.session)
            case "control+w":
                await browser.close_tab(tab)
            case "control+t":
                await browser.open_tab()
            case "control+tab":
                await browser.show_next(1)
            case "control+shift+tab":
                await browser.show_next(-1)
            case _:
                await browser.devtools.calls([*inputs.keypress(action)], tab.session)

    async def _drag(self, browser: Browser, tab: Tab, action: Drag) -> None:
        held, devtools = read_keys(action.keys or ()), browser.devtools
        tab.dragged.clear()
        await devtools.calls([*inputs.drag_start(action, held)], tab.session)
        entered = False
        for point in inputs.steps(action.path):
            if not tab.dragged:
                await devtools.calls([inputs.drag_move(point, held)], tab.session)
            if tab.dragged:  # the page gives something away, which is dropped somewhere
                over: JsonObject = {"x": point.x, "y": point.y, "data": tab.dragged[0]}
                if not entered:
                    await devtools.call("Input.dispatchDragEvent", {"type": "dragEnter", **over}, tab.session)
                    entered = True
                await devtools.call("Input.dispatchDragEvent", {"type": "dragOver", **over}, tab.session)
        if tab.dragged:
            last = action.path[-1]
            drop: JsonObject = {"type": "drop", "x": last.x, "y": last.y, "data": tab.dragged[0]}
            await devtools.call("Input.dispatchDragEvent", drop, tab.session)
        await devtools.calls([*inputs.drag_end(action, held)], tab.session)

    async def _travel(self, browser: Browser, tab: Tab, step: int) -> None:
        """Go through the history of a tab."""
        history = await browser.devtools.call("Page.getNavigationHistory", {}, tab.session)
        entries, index = history["entries"], history["currentIndex"]
        assert isinstance(entries, list) and isinstance(index, int)
        if not 0 <= index + step < len(entries):
            self._notes.add(f"There is no page to go {'back' if step < 0 else 'forward'} to.")
            return
        entry = entries[index + step]
        assert isinstance(entry, dict)
        await browser.devtools.call("Page.navigateToHistoryEntry", {"entryId": entry["id"]}, tab.session)

    async def _load(self, browser: Browser, tab: Tab, address: str) -> None:
        tab.loaded.clear()
        try:
            done = await browser.devtools.call("Page.navigate", {"url": address}, tab.session, LOAD_S)
        except TimeoutError:  # its server has not answered yet
            self._notes.add(LOADING.format(LOAD_S))
            tab.loaded.set()
            return
        if (fault := done.get("errorText")) is not None:
            tab.loaded.set()
            self._notes.add(f"{address} could not be opened: {fault}.")

    async def _settle(self, browser: Browser) -> None:
        """Wait until what was begun is seen: the next frame, and the pages that are being loaded."""
        try:
            async with asyncio.timeout(LOAD_S):
                seen = None
                while seen is not (tab := await browser.ready_tab()):
                    seen = tab
                    await self._next_frame(browser, tab)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(BEGIN_S):
                            await tab.begun.wait()
                    if not tab.loaded.is_set():
                        await tab.loaded.wait()
                        await self._next_frame(browser, tab)  # a page takes no clicks before its first
        except TimeoutError:
            self._notes.add(LOADING.format(LOAD_S))
        except (Refusal, BrowserLost):
            pass  # the picture shows what there is

    async def _next_frame(self, browser: Browser, tab: Tab) -> None:
        frame: JsonObject = {"expression": "new Promise(requestAnimationFrame)", "awaitPromise": True}
        with suppress(TimeoutError, Refusal):
            await browser.devtools.call("Runtime.evaluate", frame, tab.session, FRAME_S)

    async def _picture(self, tab: Tab) -> bytes:
        assert self._browser is not None
        png: JsonObject = {"format": "png"}
        taken = await self._browser.devtools.call("Page.captureScreenshot", png, tab.session, PICTURE_S)
        return base64.b64decode(str(taken["data"]))
