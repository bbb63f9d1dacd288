"""A session's way to the web, made when a tool first uses it. Light: what it stands on is imported then."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ferrule.protocol.items import ResponseItem

if TYPE_CHECKING:
    from ferrule.web.browser import Browser
    from ferrule.web.marks import Source
    from ferrule.web.memory import Memory

NOT_HERE = "{tool} cannot be used: {missing}. The user can set it in config.toml. Go on without the web."


class WebAccess:
    """`open` makes the browser; `missing` returns which setting is missing, or None. `history` gives the items of the
    conversation, whose sources keep their numbers. `close` closes what the browser uses."""

    def __init__(
        self,
        open: Callable[[], "Browser"],  # noqa: A002
        missing: Callable[[], str | None],
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._open = open
        self.missing = missing
        self._close = close
        self.history: Callable[[], Iterable[ResponseItem]] = tuple
        self._browser: Browser | None = None
        self._memory: Memory | None = None

    @property
    def browser(self) -> "Browser":
        """The session's browser. Raises `UsageError`."""
        if self._browser is None:
            self._browser = self._open()
        return self._browser

    @property
    def memory(self) -> "Memory":
        """The sources and pages of the conversation."""
        if self._memory is None:
            from ferrule.web.memory import Memory

            self._memory = Memory()
            self._memory.recall(self.history())
        return self._memory

    @property
    def sources(self) -> "Mapping[int, Source]":
        """The pages that the conversation may cite."""
        return self.memory.sources

    async def aclose(self) -> None:
        """Close what was opened."""
        browser, self._browser = self._browser, None
        if browser is not None:
            await browser.aclose()
        if self._close is not None:
            await self._close()
