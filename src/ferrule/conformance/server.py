"""The server under test: requests to it, and what it answers."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from ferrule.conformance.failures import Failed, Skipped

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

Json = dict[str, Any]

WAIT_S = 120.0
"""Seconds that an answer may take: a large model on a small machine is slow."""
SHORT = "Answer with one short word."
"""What most checks ask: any answer will do."""
TERMINAL = ("completed", "failed", "incomplete", "cancelled")
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")
"""Events after which nothing follows."""

WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ASK_WEATHER = 'Call get_weather with exactly: {"city": "Rome"}'
"""Scripted models obey the words after `exactly:` to the letter; others do so well enough."""
FORCED: Json = {
    "input": ASK_WEATHER,
    "tools": [WEATHER],
    "tool_choice": {"type": "function", "name": "get_weather"},
}


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body, a JSON object."""
        try:
            return msgspec.json.decode(self.body, type=Json)
        except msgspec.MsgspecError as error:
            raise Failed(f"the body is no JSON object ({error}): {self.body[:200]!r}") from error

    @property
    def error(self) -> Json:
        """The error that the body holds."""
        found = self.json.get("error")
        if not isinstance(found, dict):
            raise Failed(f"the body of a {self.status} holds no error object: {self.body[:200]!r}")
        return found


class Event(msgspec.Struct, frozen=True):
    """A server-sent event: the name of its line, and what it says."""

    name: str
    data: Json

    @property
    def type(self) -> str:
        """The type that the data tells."""
        return str(self.data.get("type"))


class Stream(msgspec.Struct, frozen=True):
    """A whole stream. `done`: it ended with `[DONE]`."""

    events: tuple[Event, ...]
    done: bool

    def of(self, *types: str) -> list[Json]:
        """Return the data of the events of these types."""
        return [event.data for event in self.events if event.type in types]

    @property
    def final(self) -> Json:
        """The response of the last event."""
        found = self.events[-1].data.get("response") if self.events else None
        if not isinstance(found, dict):
            raise Failed("the last event of the stream holds no response")
        return found


class Server:
    """The server. `wait_s`: seconds that an answer may take."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str = "unused",
        model: str = "m",
        wait_s: float = WAIT_S,
        mcp_url: str | None = None,
    ) -> None:
        self.mcp_url = mcp_url
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.wait_s = wait_s
        self._head = {"authorization": f"Bearer {key}"}
        self._client = httpx2.Client(headers=self._head, timeout=wait_s, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def send(self, method: str, path: str, body: object = None, **query: object) -> Answer:
        """Send one request. Bytes go as they are, anything else as JSON."""
        content, headers = _content(body)
        url, params = self.base_url + path, {name: str(value) for name, value in query.items()}
        answer = self._client.request(method, url, content=content, headers=headers, params=params)
        return Answer(answer.status_code, answer.headers, answer.content)

    def get(self, path: str, **query: object) -> Json:
        """Return what stands at a path."""
        return _good(self.send("GET", path, **query))

    def post(self, path: str, body: object = None) -> Json:
        """Return the answer to a request that must succeed."""
        return _good(self.send("POST", path, body))

    def send_file(self, path: str, content: bytes, *, field: str = "file", name: str = "file", **fields: str) -> Answer:
        """Send a form with a file."""
        answer = self._client.post(self.base_url + path, files={field: (name, content)}, data=fields)
        return Answer(answer.status_code, answer.headers, answer.content)

    def send_files(self, path: str, files: Mapping[str, bytes], **fields: str) -> Answer:
        """Send a form with files, by their names, in the field `files[]`."""
        parts = [("files[]", (name, content)) for name, content in files.items()]
        answer = self._client.post(self.base_url + path, files=parts, data=fields)
        return Answer(answer.status_code, answer.headers, answer.content)

    def post_files(self, path: str, files: Mapping[str, bytes], **fields: str) -> Json:
        """Return the answer to a form with files, which must succeed."""
        return _good(self.send_files(path, files, **fields))

    def post_file(self, path: str, content: bytes, *, field: str = "file", name: str = "file", **fields: str) -> Json:
        """Return the answer to a form with a file, which must succeed."""
        return _good(self.send_file(path, content, field=field, name=name, **fields))

    def body(self, **fields: object) -> Json:
        """Return the body of a request for a response."""
        return {"model": self.model, "input": SHORT} | fields

    def ask(self, **fields: object) -> Answer:
        """Ask for a response, whatever comes."""
        return self.send("POST", "/responses", self.body(**fields))

    def create(self, **fields: object) -> Json:
        """Create a response, which must succeed."""
        return _good(self.ask(**fields))

    def stream(self, **fields: object) -> Stream:
        """Create a response as a stream, and read it to its end."""
        with self.events("POST", "/responses", self.body(stream=True, **fields)) as events:
            return _whole(events)

    def follow(self, response_id: str, **query: object) -> Stream:
        """Read the stream of a background response to its end."""
        with self.events("GET", f"/responses/{response_id}", stream="true", **query) as events:
            return _whole(events)

    @contextmanager
    def events(self, method: str, path: str, body: object = None, **query: object) -> Iterator[Iterator[Event | None]]:
        """Read the events of a stream as they come; None stands for `[DONE]`."""
        content, headers = _content(body)
        url, params = self.base_url + path, {name: str(value) for name, value in query.items()}
        with self._client.stream(method, url, content=content, headers=headers, params=params) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise Failed(f"{method} {path}: {answer.status_code} {answer.read()[:200]!r}")
            yield _events(answer.iter_lines())

    @contextmanager
    def socket(self) -> Iterator["Socket"]:
        """Connect by WebSocket."""
        try:
            from websockets.exceptions import InvalidHandshake
            from websockets.sync.client import connect
        except ModuleNotFoundError as error:
            raise Skipped("needs the extra `check`: pip install 'ferrule[check]'") from error
        url = "ws" + self.base_url.removeprefix("http") + "/responses"
        try:
            connection = connect(url, additional_headers=self._head, open_timeout=self.wait_s, proxy=None)
        except (InvalidHandshake, OSError) as error:
            raise Failed(f"no WebSocket at {url}: {error}") from error
        with connection:
            yield Socket(connection, self.model, self.wait_s)

    # What several checks look at: made once

    @cached_property
    def answered(self) -> Json:
        """A response with a message."""
        return self.create()

    @cached_property
    def streamed(self) -> Stream:
        """A stream with a message."""
        return self.stream()

    @cached_property
    def called(self) -> Stream:
        """A stream with a function call."""
        return self.stream(**FORCED)

    @property
    def streams(self) -> tuple[tuple[str, Stream], ...]:
        """Both streams, each with what it holds."""
        return ("a message", self.streamed), ("a call", self.called)


class Socket:
    """A WebSocket connection."""

    def __init__(self, connection: "ClientConnection", model: str, wait_s: float) -> None:
        self._connection = connection
        self._model = model
        self._wait_s = wait_s

    def send(self, message: object) -> list[Json]:
        """Send a message, text or JSON, and return the events up to the last one."""
        self.tell(message)
        return self.until(*ENDS)

    def create(self, **fields: object) -> list[Json]:
        """Create a response that is not stored, and return its events."""
        self.begin(**fields)
        return self.until(*ENDS)

    def begin(self, **fields: object) -> None:
        """Create a response that is not stored, and wait for nothing."""
        self.tell({"type": "response.create", "model": self._model, "input": SHORT, "store": False} | fields)

    def tell(self, message: object) -> None:
        """Send a message, text or JSON."""
        from websockets.exceptions import ConnectionClosed

        try:
            self._connection.send(message if isinstance(message, str) else json.dumps(message))
        except ConnectionClosed as error:
            raise Failed(f"the connection is closed: {error}") from error

    def until(self, *types: str) -> list[Json]:
        """Return the events up to one of these types, or to an error."""
        found: list[Json] = []
        while not found or found[-1].get("type") not in (*types, "error"):
            found.append(self._receive())
        return found

    def _receive(self) -> Json:
        from websockets.exceptions import ConnectionClosed

        try:
            return msgspec.json.decode(self._connection.recv(self._wait_s), type=Json)
        except (ConnectionClosed, TimeoutError, msgspec.MsgspecError) as error:
            raise Failed(f"the connection gave no further event: {error}") from error


def _content(body: object) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    return (body if isinstance(body, bytes) else msgspec.json.encode(body)), {"content-type": "application/json"}


def _good(answer: Answer) -> Json:
    if answer.status != httpx2.codes.OK:
        raise Failed(f"a {answer.status}: {answer.body[:200].decode(errors='replace')}")
    return answer.json


def _events(lines: Iterator[str]) -> Iterator[Event | None]:
    name, data = "", []
    for line in lines:
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            data.append(line.removeprefix("data:").strip())
        elif not line and data:
            yield _event(name, "\n".join(data))
            name, data = "", []


def _event(name: str, text: str) -> Event | None:
    if text == "[DONE]":
        return None
    try:
        return Event(name, msgspec.json.decode(text, type=Json))
    except msgspec.MsgspecError as error:
        raise Failed(f"an event is no JSON object: {text[:200]}") from error


def _whole(events: Iterator[Event | None]) -> Stream:
    found = tuple(events)
    if not found or found[0] is None:
        raise Failed("the stream holds no event")
    done = found[-1] is None
    return Stream(tuple(event for event in found if event is not None), done)
