"""The smallest MCP server over stdio, with one tool `echo`: what its calls cost is the client's."""

import json
import sys

TOOL = {
    "name": "echo",
    "description": "Say it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": True},
}


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked)}), flush=True)


def answer(asked: dict[str, object]) -> dict[str, object]:
    """The result of a request."""
    params = asked.get("params")
    given = params if isinstance(params, dict) else {}
    match asked["method"]:
        case "initialize":
            version = given.get("protocolVersion", "2025-06-18")
            info = {"name": "echo", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": given["arguments"]["text"]}]}
        case _:
            return {}


if __name__ == "__main__":
    main()
