"""The servers that `ferrule serve` and `ferrule batch` ask, in a process of their own: a model, and MCP over HTTP.

They outlive every round, so what they hold is not counted with the soak's own. `python -m tests.soak.upstream SEED`
prints their addresses as JSON; when its standard input ends, it says what was wrong with requests, and ends. The model
does what the last message says, which `told` writes.
"""

import json
import random
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ferrule.testing import RandomChunks, ScriptedModel, function_call, hang_up, http_error, step
from ferrule.testing.request import Request, call_outputs, content_text
from ferrule.testing.steps import Raw, Step
from tests.mcp.web import Asked, Reply, mcp_result, stub

BEGIN, END = "<told>", "</told>"
MOST_KEPT = 200
"""Requests that the model's server keeps."""

Call = tuple[str, dict[str, Any]]


def told(calls: Sequence[Call], last: str, faults: float = 0.0, slow: float = 0.0) -> str:
    """Write the message that makes the model call these tools, one after the other, and then say `last`. `faults` is
    the share of its answers that go wrong, `slow` are seconds before each."""
    return BEGIN + json.dumps({"calls": calls, "last": last, "faults": faults, "slow": slow}) + END


class Voice:
    """The model, which remembers nothing: the request says how far it is."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Step | Raw:
        """Return the next call, or the last words."""
        text, done = _asked(request)
        if text is None:
            return step("Nothing was said.")
        with self._lock:
            rng = random.Random(self._rng.random())
        if rng.random() < text["faults"]:
            return _fault(rng)
        if done < len(text["calls"]):
            name, arguments = text["calls"][done]
            return step(function_call(name, arguments), delay=text["slow"])
        return step(text["last"], delay=text["slow"], chunks=RandomChunks(rng.randrange(1000), most=400))


def _asked(request: Request) -> tuple[dict[str, Any] | None, int]:
    """Return what the last message says, and how many calls were answered since."""
    found, done = None, 0
    for item in request.items:
        done += len(call_outputs(item))
        if item.get("role") == "user" and BEGIN in (said := content_text(item.get("content"))):
            found, done = json.loads(said[said.rindex(BEGIN) + len(BEGIN) : said.rindex(END)]), 0
    return found, done


def _fault(rng: random.Random) -> Step | Raw:
    kind = rng.randrange(4)
    if kind == 0:
        return http_error(429, "slow down", headers={"retry-after": rng.choice(["0", "0.3", "1"])})
    if kind == 1:
        return http_error(rng.choice([500, 502, 503]), "oops", headers={"retry-after-ms": "100"})
    if kind == 2:
        return step("This is going to be cut off.", cut_after=rng.randrange(200))
    return hang_up()


LOST: tuple[Reply, ...] = ((0, {}, b""), (500, {}, b"oops"), (404, {}, b"no such session"))
"""Answers of an MCP server that is not well."""


class Remote:
    """An MCP server over HTTP: each tenth answer below `/faults` is lost, or an error."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(f"{seed}/mcp")
        self._lock = threading.Lock()

    def answer(self, asked: Asked) -> Reply:
        """Answer one message. Its client may be gone before it was sent whole."""
        with self._lock:
            kind = self._rng.randrange(30)
        if "faults" in asked.path and kind < len(LOST):
            return LOST[kind]
        method = asked.json.get("method", "") if asked.raw else None
        if method is None:
            return 400, {}, b"no message"
        if method in ("initialize", "ping", "tools/list", "tools/call") or method.startswith("notifications/"):
            return mcp_result(asked)
        error = {"code": -32601, "message": "unknown"}
        return 200, {}, json.dumps({"jsonrpc": "2.0", "id": asked.json.get("id"), "error": error}).encode()


def main(seed: str) -> None:
    """Serve until standard input ends."""
    with ScriptedModel(Voice(seed).answer, strict=True, on_finished=lambda _: _forget(model)) as model:
        with stub(Remote(seed).answer) as remote:
            print(json.dumps({"model": model.base_url, "mcp": remote}), flush=True)
            sys.stdin.read()
        print(*model.failures, sep="\n", flush=True)


def _forget(model: ScriptedModel) -> None:
    del model.requests[:-MOST_KEPT]


if __name__ == "__main__":
    main(sys.argv[1])
