"""Import what calls will need while the model thinks of its first one."""

import asyncio
from collections.abc import Callable
from importlib import import_module

from ferrule.protocol.specs import ConfiguredToolSpec
from ferrule.session.toolset import Toolset
from ferrule.tools.registry import ToolRegistry
from ferrule.tools.tasks import run_blocking

QUIET_SECONDS = 0.2
"""How long the model is waited for before tools are loaded: most think longer. Of one that answers sooner, a call loads
only what it needs itself, and an answer in words ends a run that has loaded nothing."""

STEPS = ("importlib.metadata", "pydantic", "pydantic.json_schema", "pydantic.types", "ferrule.tools.action")
"""What the tools need, in the order in which it is imported. An import cannot be stopped, and all at once they take
most of the time: so who ends while they load waits for a quarter of it at most."""


class ToolLoading:
    """Loads a toolset's tools in the background, once for each list of them."""

    __slots__ = ("_due", "_ended", "_loaded", "_runs", "_toolset")

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._loaded: list[ConfiguredToolSpec] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._runs: list[asyncio.Future[None]] = []
        self._ended = False

    def due(self, specs: list[ConfiguredToolSpec]) -> Callable[[], None] | None:
        """Return what starts the loading; None if these tools are loaded."""
        return None if self._loaded is specs else self._start_soon

    def _start_soon(self) -> None:
        self._loaded, registry = self._toolset.current()
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._start, registry)

    def _start(self, registry: ToolRegistry) -> None:
        self._runs.append(asyncio.ensure_future(run_blocking(self._load, registry)))

    def _load(self, registry: ToolRegistry) -> None:
        for module in STEPS:
            if self._ended:
                return
            import_module(module)
        registry.load_all(lambda: not self._ended)

    async def end(self) -> None:
        """Load nothing more, and wait for the step that runs: a thread cannot be stopped."""
        self._ended = True
        if self._due is not None:
            self._due.cancel()
        if self._runs:
            await asyncio.wait(self._runs)
