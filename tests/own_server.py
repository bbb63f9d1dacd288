"""A model server like those that people run at home: paths with fixed answers, and a chat that says what it is told."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.http_servers import HttpServer, Silent, listening

Reply = tuple[int, Mapping[str, str], bytes]


def says(value: object, status: int = 200, **headers: str) -> Reply:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return status, {"content-type": "application/json", **headers}, body


class OwnServer:
    """`routes` are answers by method and path; any other path has 404. `held`: paths that never answer."""

    def __init__(self, routes: Mapping[str, Reply], answers: Sequence[str] = (), held: Sequence[str] = ()) -> None:
        self.routes = routes
        self.held = held
        self.asked: list[str] = []
        self.keys: list[str | None] = []
        self.bodies: list[dict[str, Any]] = []
        self.base_url = ""
        self.released = threading.Event()
        self._answers = iter(answers)

    def reply(self, path: str, body: bytes) -> Reply:
        self.asked.append(path)
        if path.endswith("/chat/completions"):
            self.bodies.append(json.loads(body))
            return self._chat()
        if path in self.held:
            self.released.wait()
        return self.routes.get(path) or says({"error": {"code": 404, "message": "File Not Found"}}, 404)

    def _chat(self) -> Reply:
        text = next(self._answers, "Done.")
        chunks: list[dict[str, object]] = [{"delta": {"content": text}}, {"delta": {}, "finish_reason": "stop"}]
        lines = [f"data: {json.dumps({'id': 'c', 'choices': [{'index': 0, **chunk}]})}\n\n" for chunk in chunks]
        return 200, {"content-type": "text/event-stream"}, "".join([*lines, "data: [DONE]\n\n"]).encode()


@contextmanager
def own_server(
    routes: Mapping[str, Reply] = {},
    answers: Sequence[str] = (),
    held: Sequence[str] = (),
) -> Iterator[OwnServer]:
    served = OwnServer(routes, answers, held)

    class Handler(Silent):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            served.keys.append(self.headers.get("authorization"))
            status, headers, content = served.reply(f"{self.command} {self.path}", body)
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815 - names of the library

    with listening(HttpServer(Handler)) as server:
        served.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield served
        finally:
            served.released.set()


def llama_cpp(
    *, tools: bool | None = True, window: int = 32_768, vision: bool = False, **more: object
) -> dict[str, Reply]:
    """As llama-server answers; `tools` None: an older one, without `chat_template_caps`."""
    caps = {} if tools is None else {"chat_template_caps": {"supports_tools": tools, "supports_tool_calls": tools}}
    props = {
        "default_generation_settings": {"id": 0, "n_ctx": window, "params": {}}, "total_slots": 1,
        "modalities": {"vision": vision, "audio": False}, "chat_template": "{% for m in messages %}{% endfor %}",
        "build_info": "b9000", **caps, **more,
    }  # fmt: skip
    listed = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "llamacpp", "meta": {}}]}
    return {"GET /props": says(props), "GET /v1/models": says(listed)}


def ollama(*, capabilities: Sequence[str], parameters: str = "", running: int | None = None) -> dict[str, Reply]:
    """As Ollama answers."""
    info = {"general.architecture": "llama", "llama.context_length": 131_072}
    shown = {"parameters": parameters, "template": "", "capabilities": capabilities, "model_info": info, "details": {}}
    loaded = [] if running is None else [{"name": "m:latest", "model": "m:latest", "context_length": running}]
    listed = {"object": "list", "data": [{"id": "m:latest", "object": "model", "owned_by": "library"}]}
    return {
        "POST /api/show": says(shown), "GET /api/ps": says({"models": loaded}), "GET /v1/models": says(listed),
    }  # fmt: skip


def lm_studio(
    *, kind: str = "llm", capabilities: Sequence[str] = ("tool_use",), window: int = 8_192
) -> dict[str, Reply]:
    """As LM Studio answers, which has a 200 for paths that it does not know."""
    entry = {
        "id": "m", "object": "model", "type": kind, "state": "loaded", "max_context_length": 131_072,
        "loaded_context_length": window, "capabilities": capabilities,
    }  # fmt: skip
    unknown = says({"error": "Unexpected endpoint or method. (GET /props)"})
    return {"GET /props": unknown, "GET /api/v0/models": says({"object": "list", "data": [entry]})}


def vllm(window: int = 16_384) -> dict[str, Reply]:
    """As vLLM answers."""
    entry = {"id": "m", "object": "model", "owned_by": "vllm", "root": "m", "max_model_len": window}
    return {"GET /v1/models": says({"object": "list", "data": [entry]})}
