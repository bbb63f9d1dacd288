"""A client of a few lines over the standard library, so that these tests depend on no decoder of ours."""

import http.client
import json
import socket
from collections.abc import Sequence
from typing import Any

from ferrule.testing import ScriptedModel

Json = dict[str, Any]


class Client:
    """One keep-alive connection to a scripted model."""

    def __init__(self, model: ScriptedModel) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", model.port, timeout=20)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def post(self, path: str, body: Json | bytes) -> http.client.HTTPResponse:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._http.request("POST", f"/v1/{path}", data, {"content-type": "application/json"})
        return self._http.getresponse()

    def responses(self, items: Sequence[Json] | str = "go", **fields: Any) -> Json:
        """The final response object, or the error body."""
        answer: Json = json.loads(self.post("responses", {"model": "m", "input": items, **fields}).read())
        return answer

    def chat(self, messages: Sequence[Json], **fields: Any) -> Json:
        answer: Json = json.loads(self.post("chat/completions", {"model": "m", "messages": messages, **fields}).read())
        return answer

    def stream(self, path: str = "responses", **fields: Any) -> bytes:
        given = {"messages": [USER]} if path.startswith("chat") else {"input": [USER]}
        return self.post(path, {"model": "m", "stream": True, **given, **fields}).read()


USER: Json = {"role": "user", "content": "go"}


def call(call_id: str) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id: str, text: object) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def events(body: bytes) -> list[Json]:
    """The payloads of a stream in OpenAI's framing, without `[DONE]`."""
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def raw_exchange(model: ScriptedModel, request: bytes) -> bytes:
    """Everything that the server sends until it closes."""
    with socket.create_connection(("127.0.0.1", model.port), timeout=20) as connection:
        connection.sendall(request)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received
