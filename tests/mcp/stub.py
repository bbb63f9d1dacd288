"""An MCP server of the standard library only: quick to start, and able to misbehave.

Run as a script; `server()` makes the configuration of one.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
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


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def cursor_of(message: dict[str, Any]) -> str | None:
    return (message.get("params") or {}).get("cursor")


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

    def log(self, line: str) -> None:
        if "log" in self.modes:
            with Path(self.modes["log"]).open("a") as log:
                log.write(f"{line}\n")

    def wait(self) -> None:
        """Until the gate is open; until as many servers as there are to be have started."""
        while "gate" in self.modes and not Path(self.modes["gate"]).exists():
            time.sleep(0.01)
        if "meet" in self.modes:
            (folder := Path(self.modes["meet"])).joinpath(str(os.getpid())).touch()
            while len(list(folder.iterdir())) < int(self.modes["of"]):
                time.sleep(0.01)

    def serve(self) -> None:
        self.log(f"start {os.getpid()}")
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
            self.read(line)
        self.log("end")
        if "stubborn" in self.modes:
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)

    def read(self, line: bytes) -> None:
        if "received" in self.modes:
            with Path(self.modes["received"]).open("ab") as received:
                received.write(line)
        message = json.loads(line)
        if "method" not in message:
            self.answers[message["id"]] = message
        elif message["method"] == "tools/call":
            threading.Thread(target=self.call, args=(message,), daemon=True).start()
        elif "id" in message:
            self.handle(message)
        elif message["method"] == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
            self.log("cancelled")

    def handle(self, message: dict[str, Any]) -> None:
        """Answer a request, as the modes say; what a method answers by itself is None."""
        method = message["method"]
        if self.modes.get("hang") == method:
            time.sleep(300)
        if self.modes.get("die") == method:
            os._exit(5)
        if self.modes.get("deaf") == method:
            os.close(1)
            time.sleep(300)
        if method.startswith("tasks/"):
            self.task(message)
            return
        answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "initialize": self.initialize,
            "server/discover": self.discover,
            "subscriptions/listen": self.listen,
            "tools/list": self.list_tools,
            "resources/list": self.list_resources,
            "resources/templates/list": self.list_templates,
            "resources/read": self.read_resource,
        }
        if method not in answers:
            self.refuse(message)
        elif (result := answers[method](message)) is not None:
            self.reply(message, result)

    def refuse(self, message: dict[str, Any], code: int = -32601, words: str = "unknown", **more: Any) -> None:
        self.write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": words, **more}})

    def notify(self, method: str, **more: Any) -> None:
        self.write({"jsonrpc": "2.0", "method": f"notifications/{method}", **more})

    def initialize(self, message: dict[str, Any]) -> Any:
        if "modern" in self.modes:
            return self.refuse(message, -32022, "no", data={"supported": ["2026-07-28"], "requested": "x"})
        if "greeting" in self.modes:
            return json.loads(self.modes["greeting"])
        self.client = message["params"]["capabilities"]
        can: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {}}
        if "tasks" in self.modes:
            can["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": can,
            "serverInfo": {"name": "stub", "version": "1"},
        }

    def discover(self, message: dict[str, Any]) -> Any:
        if "modern" not in self.modes:
            return self.refuse(message)
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}

    def listen(self, message: dict[str, Any]) -> None:
        self.listening = message["id"]
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        self.notify("subscriptions/acknowledged", params=params)

    def list_tools(self, message: dict[str, Any]) -> Any:
        self.log("tools/list")
        self.reply(message, self.tools(cursor_of(message)))
        if "storm" in self.modes:
            self.notify("tools/list_changed")

    def list_resources(self, message: dict[str, Any]) -> Any:
        name = "two" if cursor_of(message) else "one"
        following = {"nextCursor": "next"} if "pages" in self.modes and name == "one" else {}
        return {"resources": [{"uri": f"memo://{name}", "name": name, "mimeType": "text/plain"}], **following}

    def list_templates(self, message: dict[str, Any]) -> Any:
        return {"resourceTemplates": [{"uriTemplate": "memo://{name}", "name": "memo"}]}

    def read_resource(self, message: dict[str, Any]) -> Any:
        if message["params"]["uri"] != "memo://one":
            return self.refuse(message, -32002, "no such resource")
        return {"contents": [{"uri": "memo://one", "text": "first"}, {"uri": "x:y", "blob": "AAAA"}]}

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
            self.notify("progress", params=progress)
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
            self.refuse(message, -32603, "the disk is full")
        else:
            self.reply(message, said(f"deep: {task.get('said', 'done')}"))

    def task(self, message: dict[str, Any]) -> None:
        number = message["params"]["taskId"]
        if "forgets-tasks" in self.modes:
            self.refuse(message, -32602, "no such task")
        elif message["method"] == "tasks/result":
            self.waiting[number] = message
            self.answer_task(number)
        else:
            if message["method"] == "tasks/cancel":
                self.tasks[number]["status"] = "cancelled"
                self.log("task cancelled")
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

    def call(self, message: dict[str, Any]) -> None:
        """Run a tool: its method `call_NAME`, if it has one. What that answers by itself is None."""
        params = message["params"]
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "deep" and "task" in params:
            self.start_task(message)
            return
        run = getattr(self, f"call_{name}", None)
        told = f"{name}: {json.dumps(arguments, ensure_ascii=False)}"
        result = said(told) if run is None else run(message, arguments)
        if result is None:
            return
        self.reply(message, result)
        if "exit-after-call" in self.modes:
            time.sleep(0.05)
            os._exit(0)

    def call_echo(self, message: Any, arguments: Any) -> Any:
        return said(f"ECHO: {arguments.get('text')}")

    def call_result(self, message: Any, arguments: Any) -> Any:
        return arguments["result"]

    def call_environ(self, message: Any, arguments: Any) -> Any:
        return said(json.dumps({"env": dict(os.environ), "cwd": str(Path.cwd())}))

    def call_die(self, message: Any, arguments: Any) -> None:
        sys.stderr.write("out of memory\n")
        sys.stderr.flush()
        os._exit(9)

    def call_client(self, message: Any, arguments: Any) -> Any:
        answers = {method: self.ask(method, {"messages": [], "maxTokens": 1}) for method in arguments["methods"]}
        return said(json.dumps({"capabilities": self.client, **answers}))

    def call_late(self, message: Any, arguments: Any) -> None:
        """Progress after the answer, or for ever and no answer."""
        params = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}
        while arguments.get("ever"):
            self.notify("progress", params=params)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}
        told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        self.raw(json.dumps(answer).encode() + b"\n" + json.dumps(told).encode() + b"\n")

    def call_flood(self, message: Any, arguments: Any) -> Any:
        told: list[tuple[str, Any]] = [("tools/list_changed", {}), ("x/y", [1]), ("progress", 3)]
        made = ({"jsonrpc": "2.0", "method": f"notifications/{what}", "params": more} for what, more in told)
        lines = [json.dumps(one).encode() + b"\n" for one in made]
        for _ in range(200):
            self.raw(lines[0] * 200 + lines[1] * 200 + lines[2])
        return said("flood: {}")

    def call_slow(self, message: Any, arguments: Any) -> Any:
        self.log("slow")
        time.sleep(300)
        return said("slow: {}")

    def call_meet(self, message: Any, arguments: Any) -> Any:
        """Four calls of it meet if they run side by side."""
        try:
            self.met.wait(arguments["seconds"])
        except threading.BrokenBarrierError:
            return said("alone")
        return said(f"meet: {json.dumps(arguments)}")

    def call_progress(self, message: Any, arguments: Any) -> Any:
        token = message["params"]["_meta"]["progressToken"]
        for step in range(9):
            time.sleep(0.1)
            self.notify(
                "progress", params={"progressToken": token, "progress": step, "total": 9, "message": f"step {step}"}
            )
        return said("progress: {}")

    def call_grow(self, message: Any, arguments: Any) -> Any:
        self.renamed = True
        meta = {"io.modelcontextprotocol/subscriptionId": self.listening}
        self.notify("tools/list_changed", **({"params": {"_meta": meta}} if "modern" in self.modes else {}))
        return said("grow: {}")

    def call_ask(self, message: Any, arguments: Any) -> Any:
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
        form = {"message": "Really?", "requestedSchema": schema}
        params = message["params"]
        if "modern" not in self.modes:
            return said(json.dumps(self.ask("elicitation/create", form)["result"]))
        if "inputResponses" in params:
            return said(json.dumps({"state": params["requestState"], **params["inputResponses"]["q"]}))
        return {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": "elicitation/create", "params": {"mode": "form", **form}}},
            "requestState": "state",
        }

    def call_huge(self, message: Any, arguments: Any) -> None:
        self.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % message["id"])
        for _ in range(40):
            self.raw(b"x" * 1024 * 1024)
        self.raw(b'"}]}}\n')


if __name__ == "__main__":
    Stub(sys.argv[1:]).serve()
