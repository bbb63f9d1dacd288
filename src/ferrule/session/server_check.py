"""Ask a server of the user's own what it can, while it works on the session's first request."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrule.model.stream import Model
from ferrule.model.wire import WireModel
from ferrule.tools.tasks import end_tasks

if TYPE_CHECKING:
    from ferrule.model.abilities import Abilities


class ServerCheck:
    """Asks once. `tell` gets what the server says, if it says anything."""

    def __init__(self, model: Model, name: str, tell: "Callable[[Abilities], None]") -> None:
        self._model = model if isinstance(model, WireModel) else None
        self._name = name
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

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

    async def first(self) -> None:
        """Ask now, unless it was asked, and wait for the answer."""
        if (start := self.due(None)) is not None:
            start()
        await self.settled()

    async def _ask(self, model: WireModel) -> None:
        from ferrule.model.abilities import ask_abilities, is_own

        profile, server = model.accepts.name, model.server
        if not is_own(model.profiles, profile, server.endpoint.base_url):
            return
        found = await ask_abilities(server, profile, self._name)
        if found is not None:
            self._tell(found)

    async def settled(self) -> None:
        """Wait until the answer is there, or is not waited for any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def aclose(self) -> None:
        """Ask no more."""
        if self._task is not None:
            await end_tasks([self._task])
