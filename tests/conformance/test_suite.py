"""`ferrule serve check`: our own server passes it, and it finds the faults that servers have."""

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.commands import serve_check
from ferrule.cli.main import main
from ferrule.conformance.checks import CHECKS
from ferrule.conformance.run import chosen, results
from ferrule.conformance.scripted import scripted_model
from ferrule.conformance.server import Event, Server, Stream
from ferrule.protocol.errors import UsageError
from tests.gateway.served import Served, new_place, serving
from tests.hosted.remote import URL, remote
from tests.http_servers import HttpServer, Silent, listening

Json = dict[str, Any]


HITS = '{"results": [{"url": "https://a.example/", "title": "A", "content": "words"}]}'
PROGRAM = json.dumps(["/bin/sh", "-c", f"cat > /dev/null; echo '{HITS}'"])
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DRAW = json.dumps(["/bin/sh", "-c", f"cat > /dev/null; echo {PNG} | base64 -d > output.png"])
IMAGES = ("-c", f"image_generation.command={DRAW}")
SEARCH = ("-c", "web_search.backend=command", "-c", f"web_search.command={PROGRAM}")


@contextmanager
def gateway(folder: Path, wire: str = "chat") -> Iterator[Served]:
    """A gateway over the suite's own scripted model."""
    with scripted_model() as model, remote() as tools:
        hosts = ", ".join(f'"{name}" = "{address}"' for name, address in tools.hosts.items())
        more = ("-c", f"gateway.network.hosts={{{hosts}}}", *SEARCH, *IMAGES)
        with serving(new_place(folder), model.base_url, *more, wire=wire) as running:
            yield running


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_our_server_passes_every_check(tmp_path: Path, wire: str) -> None:
    with gateway(tmp_path, wire) as served, closing(Server(served.url, mcp_url=URL)) as server:
        found = list(results(server, chosen("*")))
    wrong = [result for result in found if result.status != "passed" and "can make no containers" not in result.why]
    assert [(result.check, result.why) for result in wrong] == []
    assert len({result.check for result in found}) == len(CHECKS) and all(result.about for result in found)


def change(kind: str, edit: Callable[[Json], object]) -> Callable[[list[Json]], None]:
    """A fault: the first event of this type is changed."""

    def apply(events: list[Json]) -> None:
        edit(next(event for event in events if event["type"] == kind))

    return apply


def _another_id(item: Json) -> None:
    item["id"] = "other_1"


def _lose(events: list[Json], kind: str) -> None:
    events.remove(next(event for event in events if event["type"] == kind))


FAULTS: dict[str, tuple[str, Callable[[list[Json]], None]]] = {
    "two identities": ("ids.streamed_is_final", lambda e: _another_id(e[-1]["response"]["output"][0])),
    "new id when done": ("ids.added_is_done", change("response.output_item.done", lambda d: _another_id(d["item"]))),
    "wrong item_id": ("ids.events_name_their_item", change(
        "response.output_text.delta", lambda d: d.update(item_id="x"))),
    "two responses": ("ids.one_response", change("response.in_progress", lambda d: _another_id(d["response"]))),
    "a gap": ("order.numbers", lambda e: e.pop(3)),  # type: ignore[dict-item]
    "an end too many": ("order.first_and_last", lambda e: e.append(e[-1])),
    "no beginning": ("order.first_and_last", lambda e: _lose(e, "response.created")),
    "an item twice": ("order.places", lambda e: e.insert(3, e[2])),
    "no output_index": ("completeness.events", change("response.output_text.delta", lambda d: d.pop("output_index"))),
    "outside its item": ("order.within_items", lambda e: e.insert(1, e[4])),
    "a piece lost": ("order.text", lambda e: _lose(e, "response.output_text.delta")),
    "a key lost": ("completeness.streamed_responses", lambda e: e[0]["response"].pop("top_p")),
    "null tools": ("completeness.streamed_responses", lambda e: e[-1]["response"].update(tools=None)),
    "no annotations": ("completeness.streamed_items", change(
        "response.output_item.done", lambda d: d["item"]["content"][0].pop("annotations"))),
    "no cached tokens": ("usage.streamed", lambda e: e[-1]["response"]["usage"].pop("input_tokens_details")),
    "a wrong sum": ("usage.streamed", lambda e: e[-1]["response"]["usage"].update(total_tokens=1)),
}  # fmt: skip


def test_each_fault_of_a_stream_is_found(tmp_path: Path) -> None:
    with gateway(tmp_path) as served, closing(Server(served.url)) as server:
        sound, _ = server.streamed, server.called
        for fault, (title, apply) in FAULTS.items():
            events = [copy.deepcopy(event.data) for event in sound.events]
            apply(events)
            vars(server)["streamed"] = Stream(tuple(Event(event["type"], event) for event in events), done=True)
            (found,) = results(server, chosen(title))
            assert found.status == "failed" and found.why, fault


class Nonsense(Silent):
    """Answers everything with an empty object."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_DELETE = do_PUT = answer  # noqa: N815 (the standard library's names)


def test_a_server_of_nonsense_fails_and_breaks_no_check(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(HttpServer(Nonsense)) as server:
        there = f"http://127.0.0.1:{server.server_port}"
        code = serve_check.main(["--base-url", f"{there}/v1", "--mcp-url", f"{there}/mcp", "--json"])
    told = json.loads(capsys.readouterr().out)
    passed = [entry["check"] for entry in told["checks"] if entry["status"] == "passed"]
    assert code == 1 and told["failed"] == len(CHECKS) and passed == []
    assert all(entry["why"] for entry in told["checks"])


def test_the_command_is_the_upstream_and_tells_each_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_model() as probe:
        upstream = probe.base_url
    port = upstream.removesuffix("/v1").rpartition(":")[2]
    with serving(new_place(tmp_path), upstream) as served:
        code = main(["serve", "check", "--base-url", served.url, "--only", "usage", "--scripted", port])
    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "passed  usage.plain", "passed  usage.streamed", "passed  usage.input_tokens", "3 passed, 0 failed, 0 skipped",
    ]  # fmt: skip


def test_a_pattern_that_fits_nothing_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no check is called 'nothing'"):
        serve_check.main(["--base-url", "http://127.0.0.1:9/v1", "--only", "nothing"])


def test_a_server_that_is_not_there_fails_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve_check.main(["--base-url", "http://127.0.0.1:9/v1", "--only", "ids.*"]) == 1
    assert "ConnectError" in capsys.readouterr().out


def test_every_check_has_a_name_of_its_own_and_a_line() -> None:
    titles = [check.title for check in CHECKS]
    assert len(set(titles)) == len(titles) and all(check.about for check in CHECKS)


def test_a_socket_that_the_server_has_closed_fails_the_check_and_no_more() -> None:
    from websockets.sync.server import ServerConnection, serve

    def answer_once(connection: ServerConnection) -> None:
        connection.recv()
        connection.send('{"type": "error", "status": 400, "error": {}}')
        connection.close(1008, "not you")

    with serve(answer_once, "127.0.0.1", 0) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{refusing.socket.getsockname()[1]}/v1"
        with closing(Server(url, wait_s=30)) as server:
            (result,) = results(server, chosen("websocket.errors"))
        refusing.shutdown()
    assert result.status == "failed" and "not you" in result.why
