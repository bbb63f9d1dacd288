"""Between the SDK's session and the bytes: lists and results are kept as the server said them.

The SDK takes an answer whole or not at all: one tool without a schema, one content block of a new kind, one result
without `content` and nothing is left of it. It also compiles servers' output schemas and runs them in this process.
So it is shown only the part that it needs itself, and the answer travels beside it, untouched.
"""

from collections.abc import Mapping
from typing import Any

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from ferrule.protocol.json_text import JsonValue

RAW = "ferrule/raw"
"""Key in a result's `_meta` under which the answer stands as it came."""


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
            return _beside(raw, {"content": []}, ("structuredContent",))
        if method == "tools/list":
            tools = raw.get("tools")
            listed = tools if isinstance(tools, list) else []
            return _beside(raw, {"tools": [_essential(tool) for tool in listed if _is_tool(tool)]})
        return raw


def _beside(
    raw: dict[str, JsonValue], shown: dict[str, JsonValue], hidden: tuple[str, ...] = ()
) -> dict[str, JsonValue]:
    kept = {key: value for key, value in raw.items() if key not in hidden and key != "_meta"}
    meta = raw.get("_meta")
    return kept | shown | {"_meta": {**(meta if isinstance(meta, dict) else {}), RAW: raw}}


def _is_tool(tool: JsonValue) -> bool:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return False
    schema = tool.get("inputSchema")
    return isinstance(schema, dict) and schema.get("type") == "object"


def _essential(tool: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"name": tool["name"], "inputSchema": tool["inputSchema"]}
