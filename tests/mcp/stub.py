"""An MCP server of the standard library only: quick to start, and able to misbehave.

Run as a script; `server()` makes the configuration of one.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__)


def server(*modes: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a stub with these modes."""
    return {"command": sys.executable, "args": ["-S", "-E", str(HERE), *modes], **settings}


def tool(name: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Tool {name}",
        "inputSchema": {"type": "object", "properties": properties or {}},
        **more,
    }


class Stub:
    def __init__(self, modes: list[str]) -> None:
        self.modes = dict(mode.partition("=")[::2] for mode in modes)
        self.lock = threading.Lock()
        self.answers: dict[Any, Any] = {}
        self.cancelled: list[Any] = []
        self.renamed = False
        self.listening: Any = None

    def write(self, message: Any) -> None:
        self.raw(json.dumps(message).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def serve(self) -> None:
        if "log" in self.modes:
            with Path(self.modes["log"]).open("a") as log:
                log.write(f"start {os.getpid()}\n")
        if "crash-at-start" in self.modes:
            sys.stderr.write("no license found\n")
            sys.exit(3)
        if "noise" in self.modes:
            self.raw(b'Starting v1.2\n\n{"not":"rpc"}\n' + b"x" * 200_000 + b"\n\xff\xfe\n")
        if "stderr" in self.modes:
            sys.stderr.write("e" * 3_000_000)
        if "child" in self.modes:
            import subprocess

            child = subprocess.Popen(["sleep", "300"], start_new_session=True)
            Path(self.modes["child"]).write_text(str(child.pid))
        time.sleep(float(self.modes.get("slow", 0)))
        if "silent" in self.modes:
            self.raw(b"still loading\n")
            time.sleep(300)
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                self.answers[message["id"]] = message
                continue
            if message["method"] == "tools/call":
                threading.Thread(target=self.call, args=(message,), daemon=True).start()
            else:
                self.handle(message)
        if "log" in self.modes:
            with Path(self.modes["log"]).open("a") as log:
                log.write("end\n")
        if "stubborn" in self.modes:
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)

    def handle(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "notifications/cancelled":
            self.cancelled.append(params["requestId"])
            if "log" in self.modes:
                with Path(self.modes["log"]).open("a") as log:
                    log.write("cancelled\n")
        if "id" not in message:
            return
        result: Any
        if method == "initialize" and "modern" in self.modes:
            error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "x"}}
            self.write({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        if method == "server/discover" and "modern" in self.modes:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
        elif method == "subscriptions/listen":
            self.listening = message["id"]
            meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
            params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            self.write({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
            return
        elif method == "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}, "resources": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }
        elif method == "tools/list":
            if "log" in self.modes:
                with Path(self.modes["log"]).open("a") as log:
                    log.write("tools/list\n")
            result = self.tools(params.get("cursor"))
        elif method == "resources/list":
            result = {"resources": [{"uri": "memo://one", "name": "one", "mimeType": "text/plain"}]}
        elif method == "resources/templates/list":
            result = {"resourceTemplates": [{"uriTemplate": "memo://{name}", "name": "memo"}]}
        elif method == "resources/read":
            if params["uri"] == "memo://one":
                result = {"contents": [{"uri": "memo://one", "text": "first"}, {"uri": "x:y", "blob": "AAAA"}]}
            else:
                self.write(
                    {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32002, "message": "no such resource"}}
                )
                return
        else:
            self.write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}})
            return
        self.reply(message, result)

    def reply(self, message: dict[str, Any], result: Any) -> None:
        if "modern" in self.modes and isinstance(result, dict):
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        self.write({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def tools(self, cursor: str | None) -> dict[str, Any]:
        if "pages" in self.modes:
            pages: dict[str | None, Any] = {
                None: (["a", "b"], "c1"), "c1": (["c", "d"], "c2"), "c2": (["e", "a"], "")
            }  # fmt: skip
            names, following = pages[cursor]
            return {"tools": [tool(name) for name in names], "nextCursor": following}
        if "endless" in self.modes:
            return {"tools": [tool("again")], "nextCursor": "x"}
        if "endless-fresh" in self.modes:
            count = int(cursor or 0)
            return {"tools": [tool(f"t{count}_{i}") for i in range(100)], "nextCursor": str(count + 1)}
        if "tools-file" in self.modes:
            return {"tools": json.loads(Path(self.modes["tools-file"]).read_text())}
        if "tools" in self.modes:
            return {"tools": json.loads(self.modes["tools"])}
        read_only = {"annotations": {"readOnlyHint": True}}
        text = {"text": {"type": "string"}}
        tools = [
            tool("echo", text, **read_only),
            tool("result", {"result": {}}, **read_only),
            tool("write", text),
            *(
                tool(name, **read_only)
                for name in ("environ", "die", "slow", "progress", "grow", "ask", "huge", "starts")
            ),
        ]
        if self.renamed:
            tools.append(tool("grown", **read_only))
        return {"tools": tools}

    def call(self, message: dict[str, Any]) -> None:  # noqa: C901 - one place for every way to misbehave
        params = message["params"]
        name, arguments = params["name"], params.get("arguments") or {}
        result: Any = {"content": [{"type": "text", "text": f"{name}: {json.dumps(arguments, ensure_ascii=False)}"}]}
        if name == "echo":
            result = {"content": [{"type": "text", "text": f"ECHO: {arguments.get('text')}"}]}
        elif name == "result":
            result = arguments["result"]
        elif name == "environ":
            seen = {"env": dict(os.environ), "cwd": str(Path.cwd())}
            result = {"content": [{"type": "text", "text": json.dumps(seen)}]}
        elif name == "die":
            sys.stderr.write("out of memory\n")
            sys.stderr.flush()
            os._exit(9)
        elif name == "slow":
            time.sleep(float(os.environ.get("SLOW", "300")))
        elif name == "progress":
            for step in range(6):
                time.sleep(0.1)
                token = params["_meta"]["progressToken"]
                progress = {"progressToken": token, "progress": step, "total": 6, "message": f"step {step}"}
                self.write({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        elif name == "grow":
            self.renamed = True
            changed: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            if "modern" in self.modes:
                changed["params"] = {"_meta": {"io.modelcontextprotocol/subscriptionId": self.listening}}
            self.write(changed)
        elif name == "ask" and "modern" in self.modes:
            schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
            form = {"mode": "form", "message": "Really?", "requestedSchema": schema}
            result = {
                "resultType": "input_required",
                "inputRequests": {"q": {"method": "elicitation/create", "params": form}},
                "requestState": "state",
            }
            if "inputResponses" in params:
                said = {"state": params["requestState"], **params["inputResponses"]["q"]}
                result = {"content": [{"type": "text", "text": json.dumps(said)}]}
        elif name == "ask":
            schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
            request = {"message": "Really?", "requestedSchema": schema}
            self.write({"jsonrpc": "2.0", "id": "ask-1", "method": "elicitation/create", "params": request})
            while "ask-1" not in self.answers:
                time.sleep(0.01)
            result = {"content": [{"type": "text", "text": json.dumps(self.answers["ask-1"]["result"])}]}
        elif name == "huge":
            self.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % message["id"])
            for _ in range(40):
                self.raw(b"x" * 1024 * 1024)
            self.raw(b'"}]}}\n')
            return
        self.reply(message, result)
        if "exit-after-call" in self.modes:
            time.sleep(0.05)
            os._exit(0)


if __name__ == "__main__":
    Stub(sys.argv[1:]).serve()
