"""A small MCP server over standard streams, for programs that have no MCP library: one function answers all calls.

It needs the standard library only, since it runs in the environments of peers.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]


def serve(tools: Sequence[Json], call: Callable[[str, Json], str]) -> None:
    """Serve the tools until the input ends. What `call` raises is the tool's own fault."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            sys.stdout.write(
                json.dumps({"jsonrpc": "2.0", "id": message["id"], **_answer(message, tools, call)}) + "\n"
            )
            sys.stdout.flush()


def _answer(message: Json, tools: Sequence[Json], call: Callable[[str, Json], str]) -> Json:
    given = message.get("params") or {}
    match message["method"]:
        case "initialize":
            about = {"name": "tool_server", "version": "1"}
            return {
                "result": {
                    "protocolVersion": given["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                }
            }
        case "tools/list":
            return {"result": {"tools": list(tools)}}
        case "tools/call":
            return {"result": _called(given, call)}
        case "ping":
            return {"result": {}}
    return {"error": {"code": -32601, "message": "no such method"}}


def _called(given: Json, call: Callable[[str, Json], str]) -> Json:
    try:
        text, failed = call(given["name"], given.get("arguments") or {}), False
    except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the model reads it
        text, failed = f"{type(error).__name__}: {error}", True
    return {"content": [{"type": "text", "text": text}], "isError": failed}
