"""A screen in the shape that agents' frameworks expect of a computer.

Source: `AsyncComputer` of the OpenAI Agents SDK (`openai-agents`), which is not imported.
"""

import base64
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self

from ferrule.containers.screen.actions import (
    Button,
    Click,
    Coordinate,
    DoubleClick,
    Drag,
    Keypress,
    Move,
    Point,
    ScreenAction,
    Scroll,
    Type,
    Wait,
)
from ferrule.containers.screen.browser import OnNavigation
from ferrule.containers.screen.errors import BadAction
from ferrule.containers.screen.network import ScreenNetwork
from ferrule.containers.screen.screen import Screen
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.sync import AsyncClosing, uninterrupted

Keys = Sequence[str] | None
_DEFAULT = ComputerSettings()


class Computer(AsyncClosing):
    """A web browser in a container of its own, seen as pictures. Use it as `async with`, in an `Agent`'s `tools`, or in
    a `ComputerTool` of the OpenAI Agents SDK.

    It reaches `allowed_domains` (`example.com`, `*.example.com`; True: every public name) on ports 80 and 443, and
    nothing by default. `hosts` sends `"name:port"` to exactly one `"address:port"`, which may be private: the name has
    to be allowed, too. `on_navigation` is asked about each address before a page is loaded from it; it returns None, or
    a sentence that says why not. `browser` is the program of a Chromium; None: what is found. Raises `UsageError` for
    what cannot be, and `ContainerError` where there can be no container.
    """

    def __init__(
        self,
        *,
        start_url: str | None = None,
        display_width: int = _DEFAULT.display_width,
        display_height: int = _DEFAULT.display_height,
        allowed_domains: Iterable[str] | Literal[True] = (),
        hosts: Mapping[str, str] | None = None,
        on_navigation: OnNavigation | None = None,
        browser: str | None = None,
    ) -> None:
        settings = ComputerSettings(
            start_url=start_url, display_width=display_width, display_height=display_height, browser=browser
        )
        access = allowed_domains if allowed_domains is True else tuple(allowed_domains) or False
        network = ScreenNetwork(access=access, hosts=hosts or {})
        self.screen = Screen.open(settings, network, on_navigation=on_navigation)
        self._problems: list[str] = []
        _show_to_the_sdk()

    async def __aenter__(self) -> Self:
        _show_to_the_sdk()
        try:
            await self.screen.start()
        except BaseException:  # nobody closes what was not entered
            await uninterrupted(self.aclose())
            raise
        return self

    async def aclose(self) -> None:
        """End the browser, and remove all that it wrote."""
        await self.screen.aclose()

    @property
    def environment(self) -> Literal["browser"]:
        """What kind of computer it is."""
        return "browser"

    @property
    def dimensions(self) -> tuple[int, int]:
        """The width and height in pixels."""
        return self.screen.settings.display_width, self.screen.settings.display_height

    @property
    def current_url(self) -> str:
        """The address of the page that is seen."""
        return self.screen.current_url

    def notices(self) -> tuple[str, ...]:
        """Return, once, what no picture shows: names that were refused, dialogs that were answered, downloads, tabs,
        crashes, and actions that could not be done."""
        problems, self._problems = self._problems, []
        return (*problems, *self.screen.notices())

    async def screenshot(self) -> str:
        """Return what is seen as a PNG in base64."""
        return base64.b64encode(await self.screen.screenshot()).decode()

    async def open_url(self, url: str) -> None:
        """Open an address, `http` or `https`. Raises `BadAddress`."""
        await self.screen.open_url(url)

    async def click(self, x: Coordinate, y: Coordinate, button: Button = "left", *, keys: Keys = None) -> None:
        """Click; `keys` are held meanwhile."""
        await self._act(Click(x, y, button, _held(keys)))

    async def double_click(self, x: Coordinate, y: Coordinate, *, keys: Keys = None) -> None:
        """Click twice."""
        await self._act(DoubleClick(x, y, _held(keys)))

    async def scroll(
        self, x: Coordinate, y: Coordinate, scroll_x: Coordinate, scroll_y: Coordinate, *, keys: Keys = None
    ) -> None:
        """Turn the wheel; positive distances lead right and down."""
        await self._act(Scroll(x, y, scroll_x, scroll_y, _held(keys)))

    async def type(self, text: str) -> None:
        """Write a text where the focus is."""
        await self._act(Type(text))

    async def wait(self) -> None:
        """Wait a second for what the page does by itself."""
        await self._act(Wait())

    async def move(self, x: Coordinate, y: Coordinate, *, keys: Keys = None) -> None:
        """Move the pointer."""
        await self._act(Move(x, y, _held(keys)))

    async def keypress(self, keys: Sequence[str]) -> None:
        """Press keys together, such as `["CTRL", "A"]`."""
        await self._act(Keypress(tuple(keys)))

    async def drag(self, path: Sequence[tuple[Coordinate, Coordinate]], *, keys: Keys = None) -> None:
        """Press the button at the first place, move along the others, release it at the last one."""
        await self._act(Drag(tuple(Point(x, y) for x, y in path), _held(keys)))

    async def _act(self, action: ScreenAction) -> None:
        """Do something. What nobody can do ends no run: it is a notice."""
        try:
            await self.screen.act(action)
        except BadAction as error:
            self._problems.append(str(error))


def _held(keys: Keys) -> tuple[str, ...] | None:
    return None if keys is None else tuple(keys)


def _show_to_the_sdk() -> None:
    """Let the OpenAI Agents SDK, if the program uses it, see a computer of its kind, which it asks for by class."""
    sdk = sys.modules.get("agents.computer")
    if sdk is not None:
        sdk.AsyncComputer.register(Computer)
