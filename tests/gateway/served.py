"""A real `ferrule serve` over a scripted model, and plain requests to it."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.command import Place

Json = dict[str, Any]


class Answer:
    """An HTTP answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    @property
    def error(self) -> Json:
        """The error, which has all its fields."""
        error: Json = self.json["error"]
        assert set(error) == {"message", "type", "code", "param"}, error
        return error


class Served:
    """A gateway that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", place: Place, url: str) -> None:
        self.process = process
        self.place = place
        self.url = url
        self.port = int(url.removesuffix("/v1").rpartition(":")[2])

    def ask(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] = {}, key: str | None = None
    ) -> Answer:
        """Send one request. Bytes go as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **headers}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, _lower(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _lower(error.headers), error.read())

    def create(self, **body: Any) -> Json:
        """Create a response and return it."""
        answer = self.ask("POST", "/responses", {"model": "m", "input": "hi"} | body)
        assert answer.status == 200, answer.body
        return answer.json

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it by a signal. Return the exit code and what it wrote on standard error after it was ready."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err.decode()


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def new_place(folder: Path) -> Place:
    """A place for a gateway and its commands."""
    (folder / "work").mkdir(exist_ok=True)
    return Place((folder / "work").resolve(), folder / "user" / ".ferrule")


@contextmanager
def serving(place: Place, upstream: str, *more: str, wire: str = "chat") -> Iterator[Served]:
    """Run `ferrule serve` over the model server at `upstream`."""
    process = place.start("serve", "--bind", "127.0.0.1:0", "--base-url", upstream, "--wire", wire, *more)
    try:
        yield Served(process, place, ready(process))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: "subprocess.Popen[bytes]") -> str:
    """Wait for the line that says where it listens; return the URL."""
    assert process.stderr is not None
    said = process.stderr.readline().decode()
    assert "http://" in said, said + process.stderr.read().decode()
    return said.split()[-1]


def events_in(body: bytes) -> list[tuple[str, Json | str]]:
    """The server-sent events of a body: name and data."""
    found: list[tuple[str, Json | str]] = []
    for block in body.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        fields = dict(line.split(": ", 1) for line in lines)
        data = fields["data"]
        found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found
