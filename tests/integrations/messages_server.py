"""A server on loopback that plays the Messages API, since none can be run here.

It answers each request with the next message of a script, and refuses what the real one is known to refuse: a call
without its result, an empty text, a name or a schema that it does not take, an image of another kind.
"""

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from tests.http_servers import HttpServer, Silent, listening

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TYPES = {"bash_20250124": "bash", "text_editor_20250728": "str_replace_based_edit_tool"}
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")

Json = dict[str, Any]


def uses(*calls: tuple[str, Any], stop_reason: str = "tool_use") -> Json:
    """A message with calls, named toolu_1, toolu_2, ..."""
    content = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        for number, (name, given) in enumerate(calls, 1)
    ]
    return {"content": content, "stop_reason": stop_reason}


def says(text: str) -> Json:
    """A message that ends the turn."""
    return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}


class MessagesServer:
    """Plays `script`; `requests` are the bodies that came."""

    def __init__(self, *script: Json) -> None:
        self._script = iter(script)
        self.requests: list[Json] = []
        self.refusals: list[str] = []
        self._open: list[str] = []
        served = self

        class Handler(Silent):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, answer = served.answer(body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = HttpServer(Handler)
        self._stack = ExitStack()
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._stack.enter_context(listening(self._server))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        assert error is not None or not self.refusals, self.refusals

    def answer(self, body: Json) -> tuple[int, Json]:
        """The status and the body of the next answer."""
        self.requests.append(body)
        goes_on = body.get("thread", {}).get("type") == "continue"
        wrong = _wrong(body, self._open if goes_on else [])
        if wrong is not None:
            self.refusals.append(wrong)
            return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": wrong}}
        usage = {"input_tokens": 1, "output_tokens": 1}
        rest = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
        said = next(self._script)
        self._open = [block["id"] for block in said["content"] if block["type"] == "tool_use"]
        return 200, {**rest, "usage": usage, **said}

    @property
    def results(self) -> list[Json]:
        """The results in the last request."""
        last = self.requests[-1]["messages"][-1]["content"]
        return [block for block in last if block["type"] == "tool_result"]


def _wrong(body: Json, awaited: list[str]) -> str | None:
    """Why the request is refused; `awaited` are the calls that the thread which it goes on with has left open."""
    for tool in body.get("tools", ()):
        if TYPES.get(tool.get("type", "")) == tool["name"]:
            if {"description", "input_schema"} & set(tool):
                return f"tools: extra inputs of {tool['name']}"
        elif not NAME.fullmatch(tool["name"]) or tool.get("input_schema", {}).get("type") != "object":
            return f"tools: {tool}"
    for message in body["messages"]:
        content = message["content"] if not isinstance(message["content"], str) else []
        answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if sorted(answered) != sorted(awaited):
            return f"tool_use ids {awaited} were answered by {answered}"
        awaited = [block["id"] for block in content if block["type"] == "tool_use"]
        for block in content:
            wrong = _wrong_blocks(block.get("content", ())) if block["type"] == "tool_result" else None
            if wrong is not None:
                return wrong
    return None


def _wrong_blocks(content: str | Sequence[Json]) -> str | None:
    if isinstance(content, str):
        return None if content else "empty result"
    for block in content:
        if block["type"] == "text" and not block["text"].strip():
            return "text content blocks must be non-empty"
        if block["type"] == "image" and block["source"].get("media_type", IMAGES[0]) not in IMAGES:
            return f"media_type: {block['source']}"
    return None
