"""A server with `/v1/embeddings` on loopback, for tests: it embeds as the toy does, and fails as it is told."""

import base64
import json
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np

from tests.http_servers import HttpServer, Silent, listening
from tests.retrieval.toy import toy_vectors


class EmbeddingServer:
    """Serves until `stop`. `requests` are the bodies that it got, `keys` their `authorization`."""

    def __init__(self, port: int = 0) -> None:
        self.width = 32
        self.form = "float"
        self.status = 200
        self.answer: Any = None
        """Is sent instead of vectors."""
        self.longest = 10**9
        """Longer texts are refused."""
        self.spoilt = "nothing is"
        """Vectors of texts with this hold no numbers."""
        self.hang = threading.Event()
        """Set: nothing is held back."""
        self.hang.set()
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self._stack = ExitStack()
        self.port = self._stack.enter_context(listening(HttpServer(self._handler(), port=port))).server_port
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def stop(self) -> None:
        self.hang.set()
        self._stack.close()

    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request["input"]]

    def reply(self, request: dict[str, Any]) -> tuple[int, Any]:
        if self.answer is not None or self.status != 200:
            return self.status, self.answer
        if any(len(text) > self.longest for text in request["input"]):
            return 400, {"error": {"message": "input is too long"}}
        rows = toy_vectors(request["input"], self.width) * np.float32(3)
        data = [{"object": "embedding", "index": n, "embedding": self._written(row)} for n, row in enumerate(rows)]
        for one, text in zip(data, request["input"], strict=True):
            if self.spoilt in text:
                one["embedding"] = [None] * self.width
        return 200, {"object": "list", "model": request["model"], "data": data[::-1]}

    def _written(self, row: Any) -> object:
        return base64.b64encode(row.astype("<f4").tobytes()).decode() if self.form == "base64" else row.tolist()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(Silent):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.hang.wait()
                server.requests.append(request)
                server.keys.append(self.headers["authorization"])
                status, answer = server.reply(request) if self.path == "/v1/embeddings" else (404, None)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler
