"""Between the SDK's session and the bytes: lists and results are kept as the server said them.

The SDK takes an answer whole or not at all: one tool without a schema, one content block of a new kind, one result
without `content` and nothing is left of it. It also compiles servers' output schemas and runs them in this process.
So it is shown only the part that it needs itself, and the whole answer is left beside it, for the task that asked.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from ferrule.protocol.json_text import JsonValue

MAX_SHOWN_DEPTH = 32
"""Levels of a schema that the SDK is shown: it looks for annotations of properties, and fails on very deep ones."""

_answer: ContextVar[dict[str, JsonValue]] = ContextVar("mcp_answer")


def take_answer() -> dict[str, JsonValue]:
    """The whole answer to the request that this task made last."""
    answer = _answer.get()
    _answer.set({})
    return answer


class Wire(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, whose lists of tools and results of calls are tolerant. `ended` is set when it is over."""

    def __init__(self, read: Any, write: Any) -> None:
        super().__init__(read, write)
        self.ended = anyio.Event()

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self.ended.set()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **private: Any
    ) -> dict[str, Any]:
        raw = await super().send_raw_request(method, params, opts, **private)
        if method == "tools/call" and raw.get("resultType", "complete") == "complete":
            _answer.set(raw)
            # As an error, which the SDK checks against no output schema (and reads no list for its sake).
            return {"content": [], "isError": True, **_kind(raw)}
        if method == "tools/list":
            _answer.set(raw)
            tools = raw.get("tools")
            listed = tools if isinstance(tools, list) else []
            cursor = raw.get("nextCursor")
            following = {"nextCursor": cursor} if isinstance(cursor, str) else {}
            return {"tools": [_essential(tool) for tool in listed if _is_tool(tool)], **following, **_kind(raw)}
        return raw


_KIND = ("resultType", "ttlMs", "cacheScope")


def _kind(raw: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What the newer protocol demands of every result."""
    return {key: raw[key] for key in _KIND if key in raw}


def _is_tool(tool: JsonValue) -> bool:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return False
    schema = tool.get("inputSchema")
    return isinstance(schema, dict) and schema.get("type") == "object"


def _essential(tool: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"name": tool["name"], "inputSchema": _shallow(tool["inputSchema"], MAX_SHOWN_DEPTH)}


def _shallow(value: JsonValue, levels: int) -> JsonValue:
    if isinstance(value, dict):
        return {key: _shallow(entry, levels - 1) for key, entry in value.items()} if levels else {}
    if isinstance(value, list):
        return [_shallow(entry, levels - 1) for entry in value] if levels else []
    return value
