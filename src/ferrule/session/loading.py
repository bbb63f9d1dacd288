"""Import what calls will need while the model thinks of its first one."""

import asyncio
from collections.abc import Callable

from ferrule.protocol.specs import ConfiguredToolSpec
from ferrule.session.toolset import Toolset
from ferrule.tools.tasks import run_blocking


class ToolLoading:
    """Loads a toolset's tools in the background, once for each list of them."""

    __slots__ = ("_loaded", "_loading", "_toolset")

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._loaded: list[ConfiguredToolSpec] | None = None
        self._loading: asyncio.Future[None] | None = None

    def due(self, specs: list[ConfiguredToolSpec]) -> Callable[[], None] | None:
        """Return what starts the loading; None if these tools are loaded."""
        return None if self._loaded is specs else self._start

    def _start(self) -> None:
        self._loaded, registry = self._toolset.current()
        self._loading = asyncio.ensure_future(run_blocking(registry.load_all))

    async def settled(self) -> None:
        """Wait until nothing loads any more: a thread cannot be stopped."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
