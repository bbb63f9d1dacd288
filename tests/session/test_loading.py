"""Tools load while the model thinks, and not for an answer that is there at once."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from ferrule.session import loading
from ferrule.session.loading import ToolLoading
from ferrule.tools.handler import DeferredHandler, ToolHandler
from ferrule.tools.registry import ToolRegistry
from tests.processes import until


class Tools:
    """A toolset of three tools, as far as loading looks at it. The first takes until `go_on`."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        handlers: dict[Any, Any] = {(None, name): DeferredHandler(partial(self._make, name)) for name in "abc"}
        self.registry = ToolRegistry(handlers, frozenset())
        self.specs: list[Any] = []

    def _make(self, name: str) -> ToolHandler:
        self.begun.set()
        assert self.go_on.wait(30)
        self.made.append(name)
        return ToolHandler()

    def current(self) -> tuple[list[Any], ToolRegistry]:
        return self.specs, self.registry


def loading_of(tools: Tools) -> ToolLoading:
    """Loading that has been started."""
    tool_loading = ToolLoading(tools)  # type: ignore[arg-type]
    start = tool_loading.due(tools.specs)
    assert start is not None
    start()
    assert tool_loading.due(tools.specs) is None
    return tool_loading


async def test_tools_load_while_the_model_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "QUIET_SECONDS", 0)
    tools = Tools()
    tools.go_on.set()
    tool_loading = loading_of(tools)
    await until(lambda: tools.made == ["a", "b", "c"])
    await tool_loading.end()


async def test_an_answer_that_is_there_at_once_loads_nothing() -> None:
    tools = Tools()
    tool_loading = loading_of(tools)
    await tool_loading.end()
    await asyncio.sleep(loading.QUIET_SECONDS * 1.5)  # as long as it would have taken
    assert not tools.begun.is_set()


async def test_who_ends_while_tools_load_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "QUIET_SECONDS", 0)
    tools = Tools()
    tool_loading = loading_of(tools)
    await until(tools.begun.is_set)
    ending = asyncio.create_task(tool_loading.end())
    await asyncio.sleep(0)
    tools.go_on.set()
    await ending
    assert tools.made == ["a"]
