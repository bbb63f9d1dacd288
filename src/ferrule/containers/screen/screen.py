"""A screen: what is seen, what is done, and what has to be told."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar

from ferrule.containers.container import Container
from ferrule.containers.host import ContainerSettings
from ferrule.containers.local import LocalHost
from ferrule.containers.notices import RESTARTED as CONTAINER_RESTARTED
from ferrule.containers.screen.actions import Click, Coordinate, DoubleClick, Drag, Move, ScreenAction, Scroll
from ferrule.containers.screen.browser import BLANK, Browser, OnNavigation, Tab
from ferrule.containers.screen.devtools import FOREVER, Refusal, TabClosed
from ferrule.containers.screen.errors import BadAction, BrowserLost, ScreenError
from ferrule.containers.screen.hands import Hands
from ferrule.containers.screen.network import FLAGS, ScreenNetwork, ScreenWay
from ferrule.containers.screen.notes import Notes
from ferrule.containers.screen.program import PROFILE, find_program
from ferrule.containers.screen.settings import checked, read_page_address
from ferrule.process.kernel import OWN_PIPES
from ferrule.process.launcher import LaunchError, Limits, Pipes
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.json_text import JsonObject
from ferrule.sandbox.linux.root import DATA, Bind
from ferrule.sync import AsyncClosing, uninterrupted

MEMORY_BYTES = 3 << 30
"""Of the browser and all its pages: a page like a map or a mail program takes half a gigabyte."""
DISK_BYTES = 4 << 30
"""Of its profile and downloads."""
LOAD_S = 10.0
"""A page that is not loaded by then is shown as far as it is."""
BEGIN_S = 1.0
"""From a page's wish for another one until that is being loaded: milliseconds."""
ANSWER_S = 1.0
"""For what a page fetches because of an action: most comes sooner, and some never ends."""
FRAME_S = 1.0
"""A page that draws draws within milliseconds; one that does not, such as one without a script's time, is not awaited.
"""
ANEW_S = 1.5
"""Until a picture is asked for once more: it takes a tenth. Doubled each time: a large one takes seconds."""
PAUSE_S = 0.05
"""After a picture that was refused."""
KEPT = "The page {} went on loading itself anew, and was closed."
MAX_PNG = 8 << 20
"""Bytes of a picture: photographs on the largest screens have more, and servers take no such requests."""
SMALLER: JsonObject = {"format": "jpeg", "quality": 80}
MAX_REFUSED = 10
MORE_REFUSED = "{} further names were refused in the same way."
TRIES = 3
"""Of a picture, while tabs close and the browser is started again."""
CLEAR_S = 60.0
"""To remove a profile, which may be full of files."""
RESTARTED = "The browser had ended and was started again: the page was loaded anew; logins and what was typed are gone."
RESTARTED_TWICE = "The browser ended again at {}: it was started with an empty page."
HANGS = "The page {} did not answer for {:g} s, and was closed."
LOADING = "The page is still loading after {:g} s: this is what there is."
OUTSIDE = "({:g}, {:g}) lies outside of the screen, which is {} x {} pixels: nothing was done."
FAR = 1_000_000_000
"""As far as a place is told of: models have written numbers of hundreds of digits."""
T = TypeVar("T")


class Screen(AsyncClosing):
    """A browser's page as pictures, and hands for it. Nothing runs before the first use. Use it as `async with`, and do
    one thing at a time."""

    def __init__(
        self, settings: ComputerSettings, way_out: ScreenWay, on_navigation: OnNavigation | None, host: LocalHost
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
        self._closed = False
        self._restarted_at: str | None = None
        """The page at which a browser ended last, unless somebody has asked for another one since."""

    @classmethod
    def open(
        cls,
        settings: ComputerSettings | None = None,
        network: ScreenNetwork | None = None,
        *,
        on_navigation: OnNavigation | None = None,
    ) -> Self:
        """Make a screen. `on_navigation` is asked about each address before a page is loaded from it. Raises
        `UsageError` for settings that cannot be, and `ContainerError` where there can be no container."""
        chosen = checked(settings or ComputerSettings())
        way_out = (network or ScreenNetwork()).way_out()
        return cls(chosen, way_out, on_navigation, LocalHost.open())

    @property
    def settings(self) -> ComputerSettings:
        return self._settings

    @property
    def container(self) -> Container | None:
        """Where the browser runs, once it was started. Downloads are in its `folder`."""
        return self._container

    @property
    def current_url(self) -> str:
        """The address of the page that is seen."""
        with suppress(ScreenError):
            if self._browser is not None:
                return self._browser.active.url
        return self._url or BLANK

    def notices(self) -> tuple[str, ...]:
        """Return, once, what has to be told since the last look: names that were refused, dialogs that were answered,
        downloads, tabs, crashes. Sentences for the model."""
        refused = self._way_out.egress.take_refusals()
        told = refused[:MAX_REFUSED]
        if len(refused) > MAX_REFUSED:
            told.append(MORE_REFUSED.format(len(refused) - MAX_REFUSED))
        told += self._notes.take()
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
            await self._once(browser, lambda tab: Hands(browser, self._notes).do(tab, action))
            await self._settle(browser)

    async def open_url(self, url: str) -> None:
        """Open an address, and wait until it is loaded, but not without end. Raises `BadAddress`, `ScreenError`."""
        address = read_page_address(url)
        async with self._lock:
            browser = await self._running()
            self._restarted_at = None
            browser.count_anew()
            before = self.current_url
            await self._once(browser, lambda tab: self._load(browser, tab, address))
            await self._settle(browser)
            if self.current_url == before != address:
                await self._open_elsewhere(browser, address)

    async def screenshot(self) -> bytes:
        """Return what is seen as a PNG of the display's size, or as a JPEG if a PNG had more than 8 MiB. Raises
        `ScreenError`."""
        async with self._lock:
            return await self._attempted(self._picture)

    async def aclose(self) -> None:
        """End the browser, and remove all that it wrote."""
        self._closed = True
        browser, self._browser = self._browser, None
        if browser is not None:
            await browser.aclose()
        if self._container is not None:
            await self._container.aclose()
        await self._host.aclose()
        await self._way_out.egress.aclose()

    async def _running(self) -> Browser:
        """Return the browser, which is started if it does not run."""
        if self._closed:
            raise ScreenError("the screen is closed")
        if self._browser is not None and not self._browser.devtools.lost:
            return self._browser
        if self._browser is not None:
            await self._clear_away(self._browser)
        browser = self._browser = await self._started()
        if (url := self._url) is not None:
            await self._once(browser, lambda tab: self._load(browser, tab, url))
            await self._settle(browser)
        return browser

    async def _clear_away(self, lost: Browser) -> None:
        """Remove what a browser that has ended left, which may be why it did; go on where it was, but not twice."""
        was, again = self.current_url, self._restarted_at
        await lost.aclose()
        self._browser = None
        self._url = was if was.startswith("http") and was != again else None
        self._restarted_at = was
        self._notes.add(RESTARTED if self._url or was != again else RESTARTED_TWICE.format(was))
        assert self._container is not None
        self._note_container(await self._ready_container())
        await self._container.run(("rm", "-rf", PROFILE), timeout=CLEAR_S)

    async def _ready_container(self, binds: tuple[Bind, ...] = ()) -> Container:
        """Return the container, which is made or started again if need be."""
        if self._container is None:
            bounds = ContainerSettings(memory_bytes=MEMORY_BYTES, disk_bytes=DISK_BYTES, temporary=True, binds=binds)
            self._container = await self._host.create(bounds, self._way_out)
        await self._container.start()
        return self._container

    def _note_container(self, container: Container) -> None:
        """Note what used up memory or disk; that it was started again says the browser's own notice."""
        for notice in container.take_notices():
            if notice != CONTAINER_RESTARTED:
                self._notes.add(notice)

    async def _started(self) -> Browser:
        program = await asyncio.to_thread(find_program, self._settings.browser)
        container = await self._ready_container(program.binds)
        self._note_container(container)
        size = f"--window-size={self._settings.display_width},{self._settings.display_height}"
        argv = ("/bin/sh", "-c", OWN_PIPES, "sh", *program.argv, *FLAGS, size, BLANK)
        try:
            child = await container.launch(argv, container.environment, DATA, Pipes(stdin=True), Limits())
        except LaunchError as error:
            raise ScreenError(f"the browser cannot be started: {error}") from error
        browser = Browser(child, self._settings, self._notes, self._on_navigation)
        try:
            await browser.start()
        except BaseException:
            await uninterrupted(browser.aclose())
            raise
        return browser

    async def _once(self, browser: Browser, do: Callable[[Tab], Awaitable[None]]) -> None:
        """Do something with the tab that is seen, which may close or hang meanwhile: then it is not done again."""
        try:
            tab = await browser.ready_tab()
            try:
                await do(tab)
            except TimeoutError:
                await self._given_up(browser, tab)
        except (TabClosed, BrowserLost):
            pass  # the picture shows what there is
        except Refusal as error:
            self._notes.add(f"That was not done: {error}.")

    async def _given_up(self, browser: Browser, tab: Tab) -> None:
        """Close a tab that hangs."""
        self._notes.add(HANGS.format(tab.url, browser.devtools.patience))
        await browser.close_tab(tab)

    async def _attempted(self, do: Callable[[Tab], Awaitable[T]]) -> T:
        """Do something with the tab that is seen, again with the next one if that closes or hangs."""
        for _ in range(TRIES):
            browser = await self._running()
            try:
                tab = await browser.ready_tab()
                try:
                    return await do(tab)
                except TimeoutError:
                    await self._given_up(browser, tab)
            except (Refusal, BrowserLost):  # it closed, or crashed and is loaded anew
                await self._settle(browser)
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
                return OUTSIDE.format(*(max(min(at, FAR), -FAR) for at in (x, y)), width, height)
        return None

    async def _load(self, browser: Browser, tab: Tab, address: str) -> None:
        tab.loaded.clear()
        tab.loader = ""
        try:
            done = await self._bounded(
                browser, browser.devtools.call("Page.navigate", {"url": address}, tab.session, FOREVER)
            )
        except TimeoutError:  # its server has not answered yet
            self._notes.add(LOADING.format(LOAD_S))
            tab.loaded.set()
            return
        except Refusal as error:
            self._notes.add(f"{address} could not be opened: {error}.")
            tab.loaded.set()
            return
        if (fault := done.get("errorText")) is None:
            tab.loader = str(done.get("loaderId", ""))
            return
        tab.loaded.set()
        if not done.get("isDownload"):
            self._notes.add(f"{address} could not be opened: {fault}.")

    async def _open_elsewhere(self, browser: Browser, address: str) -> None:
        """Open an address in a new tab if the page of this one has kept it from being opened, by loading itself anew
        again and again."""

        async def leave(tab: Tab) -> None:
            if not tab.loader:
                return
            tree = (await browser.devtools.call("Page.getFrameTree", {}, tab.session))["frameTree"]
            assert isinstance(tree, dict) and isinstance(tree["frame"], dict)
            if tree["frame"]["loaderId"] != tab.loader:
                self._notes.add(KEPT.format(tab.url))
                await browser.close_tab(tab)
                await self._load(browser, await browser.ready_tab(), address)

        await self._once(browser, leave)
        await self._settle(browser)

    async def _settle(self, browser: Browser) -> None:
        """Wait until what was begun is seen: the next frame, and the pages that are being loaded."""
        try:
            await self._bounded(browser, self._shown(browser))
        except TimeoutError:
            self._notes.add(LOADING.format(LOAD_S))
        except (Refusal, BrowserLost):
            pass  # the picture shows what there is

    async def _shown(self, browser: Browser) -> None:
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
            if not tab.answered.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(ANSWER_S):
                        await tab.answered.wait()
                await self._next_frame(browser, tab)

    async def _bounded(self, browser: Browser, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a page, `LOAD_S` at most, but longer while somebody decides about an address. Raises
        `TimeoutError`."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait([task], timeout=LOAD_S))[0]:
                if not browser.deciding:
                    raise TimeoutError
        finally:
            task.cancel()
        return task.result()

    async def _next_frame(self, browser: Browser, tab: Tab) -> None:
        frame: JsonObject = {"expression": "new Promise(requestAnimationFrame)", "awaitPromise": True}
        with suppress(TimeoutError, Refusal):
            await browser.devtools.call("Runtime.evaluate", frame, tab.session, FRAME_S)

    async def _picture(self, tab: Tab) -> bytes:
        png = await self._captured(tab, {"format": "png"})
        return png if len(png) <= MAX_PNG else await self._captured(tab, SMALLER)

    async def _captured(self, tab: Tab, form: JsonObject) -> bytes:
        """Take a picture. While another page takes the place of one, it is refused or never answered: ask anew."""
        assert self._browser is not None
        devtools, patience = self._browser.devtools, ANEW_S
        asked: set[asyncio.Task[JsonObject]] = set()
        try:
            async with asyncio.timeout(devtools.patience):
                while True:
                    asked.add(asyncio.create_task(devtools.call("Page.captureScreenshot", {**form}, tab.session)))
                    done, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                    asked -= done
                    for answer in done:
                        if (taken := _taken(answer)) is not None:
                            return taken
                        await asyncio.sleep(PAUSE_S)
                    patience *= 2
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)


def _taken(answer: "asyncio.Task[JsonObject]") -> bytes | None:
    """Return the picture of an answer; None if it was refused. Raises `TabClosed` and `BrowserLost`."""
    try:
        return base64.b64decode(str(answer.result()["data"]))
    except TabClosed:
        raise
    except Refusal:
        return None
