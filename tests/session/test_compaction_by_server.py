"""Servers that compact by themselves."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest

from ferrule.testing import ScriptedModel, function_call
from tests.http_servers import HttpServer, Silent, listening
from tests.session.windows import PLAN, Boat, Dock, once, reads


@contextmanager
def with_compact(server: ScriptedModel, answer: Callable[[dict[str, Any]], Any]) -> Iterator[tuple[str, list[Any]]]:
    """A server that compacts by itself and passes everything else on."""
    asked: list[Any] = []

    class Handler(Silent):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.endswith("/responses/compact"):
                asked.append(json.loads(body))
                status, kind, data = 200, "application/json", json.dumps(answer(asked[-1])).encode()
            else:
                request = HttpRequest(f"http://127.0.0.1:{server.port}{self.path}", body, dict(self.headers))
                with urlopen(request) as passed:
                    status, kind, data = passed.status, passed.headers["content-type"], passed.read()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with listening(HttpServer(Handler)) as proxy:
        yield f"http://127.0.0.1:{proxy.server_port}/v1", asked


def blob(request: dict[str, Any]) -> dict[str, Any]:
    users = [item for item in request["input"] if item.get("role") == "user"]
    made = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAblob"}
    return {"id": "resp_9", "object": "response.compaction", "output": [*users, made],
            "usage": {"input_tokens": 70, "output_tokens": 7, "total_tokens": 77}}  # fmt: skip


async def test_the_server_compacts_where_the_provider_says_so(dock: Dock) -> None:
    boat = Boat(8_000, [function_call("update_plan", PLAN)], *reads(*[7_000] * 5))
    with ScriptedModel(boat) as server, with_compact(server, blob) as (url, asked):
        async with await dock.open(url, window=8_000, by="endpoint") as session:
            result = await session.run("row the boat")
            assert len(asked) == len(dock.watch.compactions) >= 1 and not boat.summaries
            assert set(asked[0]) == {"model", "instructions", "input"} and asked[0]["model"] == "m-1"
            once(boat.taken[-1], "gAAAblob", "measure the boat", "Always speak of the harbour", "row the boat")
            assert result.usage.input_tokens >= sum(boat.sizes)
        async with await dock.open(url, window=8_000, by="endpoint", resume=True) as session:
            await session.run("go on")
            once(boat.taken[-1], "gAAAblob", "row the boat")


@pytest.mark.parametrize("answer", [{"output": []}, [], {"output": "x"}])
async def test_a_server_that_does_not_compact_is_replaced_by_a_summary(dock: Dock, answer: Any) -> None:
    boat = Boat(8_000, *reads(*[7_000] * 5))
    with ScriptedModel(boat) as server, with_compact(server, lambda request: answer) as (url, asked):
        async with await dock.open(url, window=8_000, by="endpoint") as session:
            assert (await session.run("row the boat")).text == "done"
    assert len(asked) == len(boat.summaries) >= 1
    assert any("summarised here instead" in text for text in dock.watch.warnings)


async def test_the_server_is_asked_to_compact_in_the_middle_of_an_answer(dock: Dock) -> None:
    made = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAblob"}
    boat = Boat(
        20_000, [function_call("update_plan", PLAN)], *reads(3_000), [made, function_call("read", {"size": 50})], "done"
    )
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=20_000, by="context_management") as session:
            result = await session.run("row the boat")
            assert result.text == "done" and len(result.tool_calls) == 3 and not boat.summaries
        body = boat.taken[0].body
        assert body["context_management"] == [{"type": "compaction", "compact_threshold": 17_000}]
        last = boat.taken[-1].raw.decode()
        once(boat.taken[-1], "gAAAblob", "measure the boat", "Always speak of the harbour")
        assert "0123456789" * 100 not in last and "0123456789" in last
        async with await dock.open(server.base_url, window=20_000, by="context_management", resume=True) as session:
            await session.run("go on")
            once(boat.taken[-1], "gAAAblob", "measure the boat", "Always speak of the harbour")
