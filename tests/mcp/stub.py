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
NAMES = ("environ", "die", "slow", "progress", "grow", "ask", "huge", "starts", "client", "late", "flood", "meet")


def server(*modes: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a stub with these modes."""
    return {"command": sys.executable, "args": ["-S", "-E", str(HERE), *modes], **settings}


def loading(**settings: Any) -> dict[str, Any]:
    """The configuration of a server that says one line, within milliseconds, and never answers."""
    return {"command": "/bin/sh", "args": ["-c", "echo still loading; exec sleep 60"], **settings}


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
        self.client: Any = None
        self.asked = 0
        self.met = threading.Barrier(4)
        self.tasks: dict[str, Any] = {}
        self.waiting: dict[str, Any] = {}

    def write(self, message: Any) -> None:
        self.raw(json.dumps(message).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def wait(self) -> None:
        """Until the gate is open; until as many servers as there are to be have started."""
        while "gate" in self.modes and not Path(self.modes["gate"]).exists():
            time.sleep(0.01)
        if "meet" in self.modes:
            (folder := Path(self.modes["meet"])).joinpath(str(os.getpid())).touch()
            while len(list(folder.iterdir())) < int(self.modes["of"]):
                time.sleep(0.01)

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
        self.wait()
        if "silent" in self.modes:
            self.raw(b"still loading\n")
            time.sleep(300)
        for line in sys.stdin.buffer:
            if "received" in self.modes:
                with Path(self.modes["received"]).open("ab") as received:
                    received.write(line)
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

    def handle(self, message: dict[str, Any]) -> None:  # noqa: C901, PLR0912 - as `call`
        method, params = message["method"], message.get("params") or {}
        if method == "notifications/cancelled":
            self.cancelled.append(params["requestId"])
            if "log" in self.modes:
                with Path(self.modes["log"]).open("a") as log:
                    log.write("cancelled\n")
        if "id" not in message:
            return
        if self.modes.get("hang") == method:
            time.sleep(300)
        if self.modes.get("die") == method:
            os._exit(5)
        if self.modes.get("deaf") == method:
            os.close(1)
            time.sleep(300)
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
        elif method == "initialize" and "greeting" in self.modes:
            result = json.loads(self.modes["greeting"])
        elif method == "initialize":
            self.client = params["capabilities"]
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}, "resources": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }
            if "tasks" in self.modes:
                result["capabilities"]["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        elif method.startswith("tasks/"):
            self.task(message)
            return
        elif method == "tools/list":
            if "log" in self.modes:
                with Path(self.modes["log"]).open("a") as log:
                    log.write("tools/list\n")
            result = self.tools(params.get("cursor"))
            if "storm" in self.modes:
                self.reply(message, result)
                self.write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                return
        elif method == "resources/list":
            name = "two" if params.get("cursor") else "one"
            result = {"resources": [{"uri": f"memo://{name}", "name": name, "mimeType": "text/plain"}]}
            if "pages" in self.modes and name == "one":
                result["nextCursor"] = "next"
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

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The client's answer to a request of ours."""
        self.asked += 1
        number = f"ask-{self.asked}"
        self.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while number not in self.answers:
            time.sleep(0.01)
        return self.answers[number]

    def start_task(self, message: dict[str, Any]) -> None:
        """A call that runs as a task: it works, asks where it is told to, and is done after some steps."""
        arguments, number = message["params"].get("arguments") or {}, f"t{message['id']}"
        now = "2026-01-01T00:00:00Z"
        task = {"taskId": number, "status": "working", "statusMessage": "begun", "createdAt": now, "pollInterval": 20}
        self.tasks[number] = task
        self.reply(message, {"task": dict(task)})
        token = message["params"]["_meta"]["progressToken"]
        for step in range(arguments.get("steps", 3)):
            time.sleep(0.1)
            progress = {"progressToken": token, "progress": step + 1, "total": 3}
            self.write({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            if task["status"] == "cancelled":
                return
        if "ask" in arguments:
            task["status"] = "input_required"
            schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
            while number not in self.waiting:
                time.sleep(0.01)
            answer = self.ask("elicitation/create", {"message": "Which?", "requestedSchema": schema})
            task["said"] = json.dumps(answer["result"])
            task["status"] = "working"
            time.sleep(arguments["ask"])
        task["status"] = arguments.get("end", "completed")
        self.answer_task(number)

    def answer_task(self, number: str) -> None:
        task = self.tasks[number]
        if task["status"] not in ("completed", "failed") or number not in self.waiting:
            return
        message = self.waiting.pop(number)
        if task["status"] == "failed":
            error = {"code": -32603, "message": "the disk is full"}
            self.write({"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            self.reply(message, {"content": [{"type": "text", "text": f"deep: {task.get('said', 'done')}"}]})

    def task(self, message: dict[str, Any]) -> None:
        number = message["params"]["taskId"]
        if "forgets-tasks" in self.modes:
            self.write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "no such task"}})
        elif message["method"] == "tasks/result":
            self.waiting[number] = message
            self.answer_task(number)
        else:
            if message["method"] == "tasks/cancel":
                self.tasks[number]["status"] = "cancelled"
                with Path(self.modes["log"]).open("a") as log:
                    log.write("task cancelled\n")
            self.reply(message, self.tasks[number])

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
            tool("deep", execution={"taskSupport": "required"}, **read_only),
            *(tool(name, **read_only) for name in NAMES),
        ]
        if self.renamed:
            tools.append(tool("grown", **read_only))
        return {"tools": tools}

    def call(self, message: dict[str, Any]) -> None:  # noqa: C901, PLR0912 - one place for every way to misbehave
        params = message["params"]
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "deep" and "task" in params:
            self.start_task(message)
            return
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
        elif name == "client":
            said = {method: self.ask(method, {"messages": [], "maxTokens": 1}) for method in arguments["methods"]}
            result = {"content": [{"type": "text", "text": json.dumps({"capabilities": self.client, **said})}]}
        elif name == "late":
            token = params["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 1}
            told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            if arguments.get("ever"):
                while True:
                    self.write(told)
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}
            self.raw(json.dumps(answer).encode() + b"\n" + json.dumps(told).encode() + b"\n")
            return
        elif name == "flood":
            told_of: list[tuple[str, Any]] = [("tools/list_changed", {}), ("x/y", [1]), ("progress", 3)]
            made = ({"jsonrpc": "2.0", "method": f"notifications/{what}", "params": more} for what, more in told_of)
            lines = [json.dumps(one).encode() + b"\n" for one in made]
            for _ in range(200):
                self.raw(lines[0] * 200 + lines[1] * 200 + lines[2])
        elif name == "slow":
            if "log" in self.modes:
                with Path(self.modes["log"]).open("a") as log:
                    log.write("slow\n")
            time.sleep(300)
        elif name == "meet":  # four calls of it meet if they run side by side
            try:
                self.met.wait(arguments["seconds"])
            except threading.BrokenBarrierError:
                result = {"content": [{"type": "text", "text": "alone"}]}
        elif name == "progress":
            for step in range(9):
                time.sleep(0.1)
                token = params["_meta"]["progressToken"]
                progress = {"progressToken": token, "progress": step, "total": 9, "message": f"step {step}"}
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
            answer = self.ask("elicitation/create", {"message": "Really?", "requestedSchema": schema})
            result = {"content": [{"type": "text", "text": json.dumps(answer["result"])}]}
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
