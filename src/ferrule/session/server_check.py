"""Ask a server of the user's own what it can, while it works on the session's first request."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrule.model.stream import Model
from ferrule.model.wire import WireModel
from ferrule.tools.tasks import end_tasks

if TYPE_CHECKING:
    from ferrule.model.abilities import Abilities, Wanted

SURELY_FITS = 4_096
"""Tokens of a history that every usable window holds: below it nothing waits for the server's answer."""


class ServerCheck:
    """Asks once; knows the model's window in tokens, and warns of what the server cannot do. None: nobody is asked.

    `wanted` is called when the server has answered. `configured` is the window that the user set, `usual` that of the
    model's profile.
    """

    def __init__(
        self,
        model: Model | None,
        name: str,
        wanted: "Callable[[], Wanted]",
        warn: Callable[[str], None],
        *,
        configured: int | None = None,
        usual: int | None = None,
    ) -> None:
        self.window = configured or usual
        """From the user, else the server, else the profile; None if nobody said it."""
        self._configured = configured
        self._model = model if isinstance(model, WireModel) else None
        self._name = name
        self._wanted = wanted
        self._warn = warn
        self._task: asyncio.Task[None] | None = None
        self._found: Abilities | None = None
        self._warned_of_images = False

    def due(self, on_sent: Callable[[], None] | None) -> Callable[[], None] | None:
        """Return what is to be called when the request has been sent: `on_sent`, and the check if it has not begun."""
        model, self._model = self._model, None
        if model is None:
            return on_sent

        def start() -> None:
            if on_sent is not None:
                on_sent()
            if self._task is None:
                self._task = asyncio.create_task(self._ask(model))

        return start

    async def before(self, tokens: int) -> None:
        """Ask before the server gets a history of `tokens` that may not fit, since many servers cut it silently."""
        if self._configured is not None or tokens <= SURELY_FITS:
            return
        if (start := self.due(None)) is not None:
            start()
        await self.settled()

    def image_added(self) -> None:
        """Warn, once, if the server takes no images."""
        if self._found is None or self._warned_of_images:
            return
        from ferrule.model.abilities import Wanted

        self._tell_shortcomings(self._found, Wanted(0, tools=False, images=True))

    async def _ask(self, model: WireModel) -> None:
        from ferrule.model.abilities import ROOM, ask_abilities, is_own

        profile, server = model.accepts.name, model.server
        if not is_own(model.profiles, profile, server.endpoint.base_url):
            return
        found = self._found = await ask_abilities(server, profile, self._name)
        if found is None:
            return
        wanted = self._wanted()
        fits = found.window is not None and not found.is_default and found.window > wanted.opening + ROOM
        if fits and self._configured is None:
            self.window = found.window
        self._tell_shortcomings(found, wanted)

    def _tell_shortcomings(self, found: "Abilities", wanted: "Wanted") -> None:
        from ferrule.model.abilities import shortcomings

        self._warned_of_images = wanted.images
        for text in shortcomings(found, self._name, wanted):
            self._warn(text)

    async def settled(self) -> None:
        """Wait until the answer is there, or is not waited for any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def aclose(self) -> None:
        """Ask no more."""
        if self._task is not None:
            await end_tasks([self._task])
