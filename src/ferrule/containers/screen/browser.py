"""One running browser: its tabs, what they ask for, and what we answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from ferrule.containers.screen.devtools import DevTools, Refusal
from ferrule.containers.screen.downloads import Downloads
from ferrule.containers.screen.errors import ScreenError
from ferrule.containers.screen.notes import Notes, quoted
from ferrule.process.launcher import Child
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.json_text import JsonObject

log = logging.getLogger("ferrule.screen")

MAX_TABS = 10
"""Tabs at once: each takes a process, and nobody looks at more."""
MAX_DIALOGS = 20
"""Dialogs of one page within one action: a page that goes on never ends."""
START_S = 60.0
"""Until a browser answers: a busy machine takes some seconds."""
BLANK = "about:blank"
IN_PAGES = """
(() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(
    "select:not([multiple]):not([size]), select:not([multiple]):not([size])::picker(select)"
    + " { appearance: base-select; }"
  );
  const {attachShadow} = Element.prototype;
  Element.prototype.attachShadow = function (...given) {
    const root = attachShadow.apply(this, given);
    root.adoptedStyleSheets = [];
    return root;
  };
  for (const {prototype} of [Document, ShadowRoot]) {
    const sheets = Object.getOwnPropertyDescriptor(prototype, "adoptedStyleSheets");
    const set = function (given) {
      const others = [...given].filter(one => one !== sheet);
      sheets.set.call(this, (this.ownerDocument ?? this) === document ? [...others, sheet] : others);
    };
    Object.defineProperty(prototype, "adoptedStyleSheets", {...sheets, set});
  }
  document.adoptedStyleSheets = [...document.adoptedStyleSheets];
  navigation.addEventListener("navigate", event => {
    if (!/^(https?|about|blob|data|javascript):/.test(event.destination.url)) event.preventDefault();
  });
})();
"""
"""Draws the list of a `select` within the page, whatever sheets that has, and in shadow trees: no click reaches a list
in a window of its own. Keeps a page where it is when it calls another program, as for `mailto:`: the browser would
leave the page, or ask in a window that nobody sees, and take no clicks meanwhile."""
PASSWORD = (
    "{} asked for a name and a password in a dialog of the browser, which was cancelled: open an address such as "
    "http://NAME:PASSWORD@HOST/ to give them."
)
HEARD: Final = frozenset({
    "Target.attachedToTarget", "Target.detachedFromTarget", "Target.targetInfoChanged", "Target.targetCrashed",
    "Page.frameRequestedNavigation", "Page.navigatedWithinDocument", "Page.frameStartedNavigating",
    "Page.frameStartedLoading", "Page.frameStoppedLoading", "Page.javascriptDialogOpening", "Page.fileChooserOpened",
    "Fetch.requestPaused", "Fetch.authRequired", "Input.dragIntercepted", "Network.requestWillBeSent",
    "Network.loadingFinished", "Network.loadingFailed", "Browser.downloadWillBegin", "Browser.downloadProgress",
})  # fmt: skip

ASKING = ("Fetch", "XHR")
"""Requests whose answers change what is seen."""
MAX_REQUESTS = 100
"""Of a tab at once, that are followed."""

OnNavigation = Callable[[str], Awaitable[str | None]]
"""Is asked about each address before a page is loaded from it: None lets it be loaded, a sentence says why not."""


class Tab:
    """One tab. `session` is its connection, `target` its page, also the id of the main frame."""

    def __init__(self, session: str, target: str, url: str) -> None:
        self.session = session
        self.target = target
        self.url = url
        self.loader = ""
        """What loads the address that was asked for last."""
        self.dialogs = 0
        self.crashes = 0
        self.begun = asyncio.Event()
        """Not set while the page has asked for another one, which the browser has not begun to load yet."""
        self.loaded = asyncio.Event()
        self.requests: set[str] = set()
        """What its page has asked a server for since somebody acted, and has no answer to yet."""
        self.answered = asyncio.Event()
        """Set while there are no such requests."""
        self.begun.set()
        self.loaded.set()
        self.answered.set()
        self.dragged: list[JsonObject] = []
        """What a drag carries, once the page has said so."""

    def forget_requests(self) -> None:
        """Wait for none of the requests so far."""
        self.requests.clear()
        self.answered.set()


class Browser:
    """A browser with at least one tab."""

    def __init__(
        self, child: Child, settings: ComputerSettings, notes: Notes, on_navigation: OnNavigation | None = None
    ) -> None:
        self._settings = settings
        self._notes = notes
        self._on_navigation = on_navigation
        self._tabs: dict[str, Tab] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.deciding = 0
        """Addresses about which somebody decides now."""
        self._opened = asyncio.Event()
        self._opening = asyncio.Lock()
        """Held while we open a tab, which is no page's then."""
        self._reactions: dict[str, Callable[[Tab, JsonObject], None]] = {
            "Page.frameRequestedNavigation": self._asked,
            "Page.navigatedWithinDocument": self._begun,
            "Page.frameStartedNavigating": self._loading,
            "Page.frameStartedLoading": self._loading,
            "Page.frameStoppedLoading": self._stopped,
            "Page.javascriptDialogOpening": self._answer,
            "Page.fileChooserOpened": self._choose_no_file,
            "Input.dragIntercepted": self._dragged,
            "Network.requestWillBeSent": self._requested,
            "Network.loadingFinished": self._responded,
            "Network.loadingFailed": self._responded,
        }
        self.devtools = DevTools(child, self._hear, HEARD)
        self._downloads = Downloads(self.devtools, notes)

    async def start(self) -> None:
        """Wait until it works. Raises `ScreenError`."""
        watched: JsonObject = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
        pages: JsonObject = {"filter": [{"type": "page"}, {"exclude": True}]}
        try:
            await self.devtools.call("Target.setDiscoverTargets", {"discover": True, **pages}, timeout=START_S)
            await self.devtools.call("Target.setAutoAttach", {**watched, **pages}, timeout=START_S)
            await self._downloads.start()
            await self._wait_for_tab()
        except TimeoutError as error:
            raise ScreenError(f"the browser did not start within {START_S:g} s") from error

    @property
    def active(self) -> Tab:
        """The tab that is seen: the one opened or chosen last. Raises `ScreenError` if the browser has none now."""
        if not self._tabs:
            raise Refusal("the browser has no tab now")
        return next(reversed(self._tabs.values()))

    async def ready_tab(self) -> Tab:
        """Return the tab that is seen; a new one if all are closed."""
        async with self._opening:
            if not self._tabs:
                await self._open_tab()
        return self.active

    async def open_tab(self) -> None:
        """Open an empty tab and show it."""
        async with self._opening:
            await self._open_tab()

    async def _open_tab(self) -> None:
        self._opened.clear()
        try:
            await self.devtools.call("Target.createTarget", {"url": BLANK}, timeout=START_S)
            await self._wait_for_tab()
        except TimeoutError as error:
            raise ScreenError("the browser opens no tab") from error

    async def _wait_for_tab(self) -> None:
        """Wait until a tab is open and does what it was told at first: a page that it loads before escapes that."""
        async with asyncio.timeout(START_S):
            await self._opened.wait()
            await self.devtools.call("Page.enable", {}, self.active.session, START_S)

    async def show(self, tab: Tab) -> None:
        """Show a tab."""
        self._tabs[tab.session] = self._tabs.pop(tab.session)
        await self.devtools.call("Page.bringToFront", {}, tab.session)

    async def show_next(self, step: int) -> None:
        """Show the next tab in the order in which they were last seen, or the one before."""
        tabs = [*self._tabs.values()]
        if len(tabs) > 1:
            await self.show(tabs[0] if step > 0 else tabs[-2])

    async def close_tab(self, tab: Tab) -> None:
        """Close a tab, also one that hangs, and show the one before."""
        self._forget(tab)
        self.devtools.send("Target.closeTarget", {"targetId": tab.target})
        await self.ready_tab()

    def count_anew(self) -> None:
        """Begin to count dialogs and requests anew, because somebody acts."""
        for tab in self._tabs.values():
            tab.dialogs = 0
            tab.forget_requests()

    async def aclose(self) -> None:
        """End it."""
        for task in self._tasks:
            task.cancel()
        await self.devtools.aclose()

    def _hear(self, session: str, name: str, said: JsonObject) -> None:
        if name == "Target.attachedToTarget":
            self._attached(session, said)
        elif name == "Target.detachedFromTarget":
            if (gone := self._tabs.get(str(said["sessionId"]))) is not None:
                self._forget(gone)
        elif name == "Target.targetInfoChanged":
            info = said["targetInfo"]
            assert isinstance(info, dict)
            self._changed(str(info["targetId"]), str(info["url"]))
        elif name == "Target.targetCrashed":
            self._crashed(str(said["targetId"]))
        elif name.startswith("Browser."):
            self._downloads.hear(name, said)
        elif name == "Fetch.requestPaused":
            self._paused(session, said)
        elif name == "Fetch.authRequired":
            self._give_no_password(session, said)
        elif (tab := self._tabs.get(session)) is not None:
            self._reactions[name](tab, said)

    def _attached(self, parent: str, said: JsonObject) -> None:
        session, info = str(said["sessionId"]), said["targetInfo"]
        assert isinstance(info, dict)
        self._prepare(session, is_page=not parent)
        self.devtools.send("Runtime.runIfWaitingForDebugger", {}, session)  # else its process, and its opener's, waits
        if not parent:
            self._add(Tab(session, str(info["targetId"]), str(info["url"])))

    def _add(self, tab: Tab) -> None:
        if len(self._tabs) >= MAX_TABS:
            self.devtools.send("Target.closeTarget", {"targetId": tab.target})
            self._notes.add(f"A page opened further tabs: they were closed, since {MAX_TABS} are open already.")
            return
        if self._tabs and not self._opening.locked():
            self._notes.add(f"A new tab was opened and is shown now ({len(self._tabs) + 1} tabs).")
        for other in self._tabs.values():
            other.begun.set()
        self._tabs[tab.session] = tab
        self._opened.set()

    def _prepare(self, session: str, *, is_page: bool) -> None:
        """Set up a page, or a frame that has a process of its own, before it runs."""
        send, width, height = self.devtools.send, self._settings.display_width, self._settings.display_height
        send("Page.enable", {}, session)
        send("Page.addScriptToEvaluateOnNewDocument", {"source": IN_PAGES, "runImmediately": True}, session)
        watched: JsonObject = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
        frames: JsonObject = {"filter": [{"type": "iframe"}, {"exclude": True}]}
        send("Target.setAutoAttach", {**watched, **frames}, session)
        send("Fetch.enable", {"handleAuthRequests": True}, session)
        if is_page:
            size: JsonObject = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            send("Emulation.setDeviceMetricsOverride", size, session)
            send("Page.setInterceptFileChooserDialog", {"enabled": True, "cancel": True}, session)
            send("Input.setInterceptDrags", {"enabled": True}, session)
            kept_in_memory: JsonObject = {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0}
            send("Network.enable", kept_in_memory, session)

    def _forget(self, tab: Tab) -> None:
        self._tabs.pop(tab.session, None)
        tab.begun.set()
        tab.loaded.set()
        tab.forget_requests()
        self.devtools.forget(tab.session)
        if self._tabs:
            self.devtools.send("Page.bringToFront", {}, self.active.session)

    def _tab_of(self, target: str) -> Tab | None:
        return next((tab for tab in self._tabs.values() if tab.target == target), None)

    def _changed(self, target: str, url: str) -> None:
        if (tab := self._tab_of(target)) is not None and tab.url != url:
            tab.url = url
            tab.crashes = 0

    def _crashed(self, target: str) -> None:
        if (tab := self._tab_of(target)) is None:
            return
        tab.crashes += 1
        tab.begun.clear()
        tab.loaded.set()
        self.devtools.forget(tab.session)
        if tab.crashes == 1:
            self._notes.add(f"The page {tab.url} crashed, and is loaded anew.")
            self.devtools.send("Page.navigate", {"url": tab.url}, tab.session)  # a reload sends forms again
        else:
            self._notes.add(f"The page {tab.url} crashed again, and was closed.")
            self.devtools.send("Page.navigate", {"url": BLANK}, tab.session)

    def _asked(self, tab: Tab, said: JsonObject) -> None:
        if said["frameId"] == tab.target and said["disposition"] != "download":
            tab.begun.clear()

    def _begun(self, tab: Tab, said: JsonObject) -> None:
        if said["frameId"] == tab.target:
            tab.begun.set()

    def _loading(self, tab: Tab, said: JsonObject) -> None:
        if said["frameId"] == tab.target and said.get("navigationType") != "sameDocument":
            tab.loaded.clear()
            tab.begun.set()
            tab.forget_requests()

    def _stopped(self, tab: Tab, said: JsonObject) -> None:
        if said["frameId"] == tab.target:
            tab.loaded.set()

    def _requested(self, tab: Tab, said: JsonObject) -> None:
        if said.get("type") in ASKING and len(tab.requests) < MAX_REQUESTS:
            tab.requests.add(str(said["requestId"]))
            tab.answered.clear()

    def _responded(self, tab: Tab, said: JsonObject) -> None:
        tab.requests.discard(str(said["requestId"]))
        if not tab.requests:
            tab.answered.set()

    def _answer(self, tab: Tab, said: JsonObject) -> None:
        """Answer a dialog with OK, as who clicked on what opened it would."""
        tab.dialogs += 1
        if tab.dialogs > MAX_DIALOGS:
            if tab.dialogs == MAX_DIALOGS + 1:
                self._notes.add(f"The page {tab.url} opened dialogs without end, and was closed.")
                self._start(self.close_tab(tab))
            return
        answer: JsonObject = {"accept": True, "promptText": said.get("defaultPrompt", "")}
        self.devtools.send("Page.handleJavaScriptDialog", answer, tab.session)
        kind, message = said.get("type"), str(said.get("message", ""))
        if kind == "beforeunload":
            self._notes.add("The page asked whether it may be left: it was left.")
        elif kind == "prompt":
            shown = quoted(str(said.get("defaultPrompt", "")))
            self._notes.add(f"The page asked {quoted(message)} (prompt): its own default {shown} was answered.")
        else:
            self._notes.add(f"The page showed {quoted(message)} ({kind}): it was answered with OK.")

    def _choose_no_file(self, tab: Tab, said: JsonObject) -> None:
        del tab, said
        self._notes.add("The page asked for a file: none was chosen, since there is no dialog for files here.")

    def _dragged(self, tab: Tab, said: JsonObject) -> None:
        data = said["data"]
        assert isinstance(data, dict)
        tab.dragged.append(data)

    def _paused(self, session: str, said: JsonObject) -> None:
        request, tab = str(said["requestId"]), self._tabs.get(session)
        is_page = tab is not None and said["frameId"] == tab.target and said["resourceType"] == "Document"
        if tab is not None and is_page and self._on_navigation is not None:
            asked = said["request"]
            assert isinstance(asked, dict)
            self.deciding += 1
            self._start(self._judge(tab, request, str(asked["url"])))
        else:
            self.devtools.send("Fetch.continueRequest", {"requestId": request}, session)

    def _give_no_password(self, session: str, said: JsonObject) -> None:
        """Let the server say what it says to who has no password: no picture shows the browser's own question."""
        answer: JsonObject = {"response": "CancelAuth"}
        self.devtools.send(
            "Fetch.continueWithAuth", {"requestId": said["requestId"], "authChallengeResponse": answer}, session
        )
        challenge = said["authChallenge"]
        assert isinstance(challenge, dict)
        self._notes.add(PASSWORD.format(challenge["origin"]))

    async def _judge(self, tab: Tab, request: str, url: str) -> None:
        """Ask whether a page may be loaded. An error of who is asked counts as a refusal, and is told."""
        assert self._on_navigation is not None
        why: str | None = "whoever decides about addresses failed."
        try:
            why = await self._on_navigation(url)
        finally:
            self.deciding -= 1
            if why is None:
                self.devtools.send("Fetch.continueRequest", {"requestId": request}, tab.session)
            else:
                self._notes.add(f"{url} was not opened: {why}")
                refused: JsonObject = {"requestId": request, "errorReason": "BlockedByClient"}
                self.devtools.send("Fetch.failRequest", refused, tab.session)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what a page asked for failed", exc_info=error)
