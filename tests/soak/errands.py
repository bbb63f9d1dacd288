"""What a client of `ferrule serve` asks for. To add an errand, write a function under `@errand`."""

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ferrule.conformance.failures import Failed
from ferrule.conformance.server import ENDS, TERMINAL, Answer, Json, Server
from tests.soak.upstream import Call, told

MCP_HOST = "mcp.soak.example"
FAULTS = 0.1
"""The share of answers of the model's server that go wrong."""
LAST = "That is all."
GONE = 404
BUSY = frozenset({429, 502, 503, 507})
"""What a server may answer while its model or its containers are down, or its disk is full."""
OK = 200
TOO_BAD = 500


@dataclass(slots=True)
class Told:
    """What clients were told: the responses that were begun, and those that were completed."""

    begun: set[str] = field(default_factory=set)
    completed: dict[str, Json] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, response: Json) -> Json:
        """Note a response as it is now."""
        with self.lock:
            self.begun.add(response["id"])
            if response["status"] == "completed":
                self.completed[response["id"]] = response
        return response


@dataclass(slots=True)
class Client:
    """One client. `calm`: nobody kills what the server runs, so its tools must work."""

    server: Server
    told: Told
    rng: random.Random
    calm: bool

    def body(self, *calls: Call, **more: object) -> Json:
        """The body of a request whose model makes these calls."""
        return {"model": "m", "input": told(calls, LAST, FAULTS)} | more

    def ask(self, *calls: Call, **more: Any) -> Json | None:
        """Ask for a response, whole or streamed, at once or in the background, as it comes. None: the server, or the
        model's, was busy."""
        with self.told.lock:
            self.told.asked += 1
        body = self.body(*calls, **more)
        way = self.rng.choice((self._whole, self._streamed, self._background, self._followed))
        return way(body)

    def _whole(self, body: Json) -> Json | None:
        found = self.good(self.server.send("POST", "/responses", body))
        return None if found is None else self.told.take(found)

    def _background(self, body: Json) -> Json | None:
        begun = self._whole(body | {"background": True})
        if begun is None:
            return None
        self.server.follow(begun["id"])
        return self.told.take(self.server.get(f"/responses/{begun['id']}"))

    def _streamed(self, body: Json) -> Json | None:
        return self._read(body | {"stream": True})

    def _followed(self, body: Json) -> Json | None:
        return self._read(body | {"stream": True, "background": True})

    def _read(self, body: Json) -> Json | None:
        """Read a stream to its end, and compare it with what is stored."""
        numbers, last, response_id = [], "", None
        try:
            with self.server.events("POST", "/responses", body) as events:
                for event in events:
                    if event is None:
                        continue
                    last = event.type
                    numbers.append(event.data["sequence_number"])
                    if "response" in event.data:
                        response_id = self.told.take(event.data["response"])["id"]
        except Failed as error:
            self.refused(str(error))
            return None
        if numbers != list(range(len(numbers))) or last not in ENDS:
            self.told.problems.append(f"{response_id}: a stream of {numbers[-3:]} ended with {last!r}")
        return None if response_id is None else self.told.take(self.server.get(f"/responses/{response_id}"))

    def good(self, answer: Answer) -> Json | None:
        """An answer that may be busy, but not wrong."""
        if answer.status == OK:
            return answer.json
        if answer.status not in BUSY:
            self.told.problems.append(f"the gateway answers {answer.status}: {answer.body[:500]!r}")
        return None

    def refused(self, words: str) -> None:
        """Judge a stream that did not begin."""
        if not any(f": {status} " in words for status in BUSY):
            self.told.problems.append(f"the gateway does not stream: {words[:500]}")

    def expect(self, response: Json | None, kind: str, *texts: str) -> None:
        """A response that was completed has items of this kind, in which these texts are."""
        if response is None or response["status"] != "completed":
            return
        found = [str(item) for item in response["output"] if item["type"] == kind]
        if not found or (self.calm and not all(any(text in one for one in found) for text in texts)):
            self.told.problems.append(f"{response['id']} has no {kind} with {texts}: {response['output']!r}"[:1500])


Errand = Callable[[Client], object]
ERRANDS: dict[str, Errand] = {}


def errand(run: Errand) -> Errand:
    """Register what a client does."""
    ERRANDS[run.__name__] = run
    return run


@errand
def talk(client: Client) -> None:
    """Some turns, each continuing the last."""
    before: Mapping[str, object] = {}
    for _ in range(client.rng.randint(1, 3)):
        response = client.ask(**before)
        if response is None or response["status"] != "completed":
            return
        client.expect(response, "message", LAST)
        before = {"previous_response_id": response["id"]}


@errand
def left_early(client: Client) -> None:
    """A client that goes before the end."""
    body = client.body(stream=True, background=client.rng.random() < 0.5)
    body["input"] = told([], LAST * 50, 0.0, slow=0.2)
    try:
        with client.server.events("POST", "/responses", body) as events:
            for event in events:
                if event is not None and "response" in event.data:
                    client.told.take(event.data["response"])
                    break
    except Failed as error:
        client.refused(str(error))


@errand
def cancelled(client: Client) -> None:
    """A response in the background that is cancelled."""
    body = client.body(background=True) | {"input": told([], LAST, 0.0, slow=2.0)}
    begun = client.good(client.server.send("POST", "/responses", body))
    if begun is not None:
        client.told.take(begun)
        found = client.good(client.server.send("POST", f"/responses/{begun['id']}/cancel"))
        if found is not None and found["status"] not in TERMINAL:
            client.told.problems.append(f"{begun['id']} was cancelled and is {found['status']}")


@errand
def container(client: Client) -> None:
    """A container of the client's, with commands, Python, and a file."""
    made = client.good(client.server.send("POST", "/containers", {"name": "soak"}))
    if made is None:
        return
    path = f"/containers/{made['id']}"
    word = f"word{client.rng.randrange(10**6)}"
    client.good(client.server.send_file(f"{path}/files", word.encode(), name="given.txt"))
    shell = {"type": "shell", "environment": {"type": "container_reference", "container_id": made["id"]}}
    run = client.ask(("shell", {"commands": ["cat given.txt; sleep 300 >/dev/null 2>&1 & echo > x"]}), tools=[shell])
    client.expect(run, "shell_call_output", word)
    python = {"type": "code_interpreter", "container": made["id"]}
    cells = [("python", {"code": code}) for code in ("kept = 41", "print(kept + 1)")]
    done = client.ask(*cells, tools=[python], include=["code_interpreter_call.outputs"])
    client.expect(done, "code_interpreter_call", "42")
    client.good(client.server.send("GET", f"{path}/files"))
    if client.rng.random() < 0.5:
        client.good(client.server.send("DELETE", path))


@errand
def automatic(client: Client) -> None:
    """A container that comes with the response."""
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    done = client.ask(
        ("python", {"code": "open('x', 'w').write('y'); print(6 * 7)"}), tools=[tool],
        include=["code_interpreter_call.outputs"],
    )  # fmt: skip
    client.expect(done, "code_interpreter_call", "42")


@errand
def library(client: Client) -> None:
    """A vector store that is filled, searched and deleted."""
    names = [f"plum{number}" for number in range(client.rng.randint(1, 4))]
    sent = [client.good(client.server.send_file("/files", f"{name} is sweet".encode(), name=f"{name}.txt",
                                                purpose="assistants")) for name in names]  # fmt: skip
    ids = [file["id"] for file in sent if file is not None]
    store = client.good(client.server.send("POST", "/vector_stores", {"file_ids": ids})) if ids else None
    if store is None:
        return
    tool = {"type": "file_search", "vector_store_ids": [store["id"]]}
    found = client.ask(("file_search", {"queries": ["plum"]}), tools=[tool])
    client.expect(found, "file_search_call")
    if client.rng.random() < 0.5:
        client.good(client.server.send("DELETE", f"/vector_stores/{store['id']}"))


@errand
def remote_tools(client: Client) -> None:
    """Tools of an MCP server over HTTP, some of whose answers are lost."""
    tool: dict[str, Any] = {
        "type": "mcp", "server_label": "web", "server_url": f"http://{MCP_HOST}/faults", "require_approval": "never"
    }  # fmt: skip
    found = client.ask(("mcp__web__echo", {"text": "hello"}), tools=[tool])
    client.expect(found, "mcp_list_tools")


@errand
def refused(client: Client) -> None:
    """What nobody can do is told, and leaves nothing."""
    wrong: list[Json] = [
        {"previous_response_id": "resp_none"},
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_0"]}]},
    ]
    for more in wrong:
        answer = client.server.send("POST", "/responses", client.body(**more))
        if answer.status in (OK, TOO_BAD):
            client.told.problems.append(f"the gateway answers {answer.status} to {more}: {answer.body[:300]!r}")
