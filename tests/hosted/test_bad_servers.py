"""MCP servers that lie, loop, flood, ask back, send elsewhere or never answer."""

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ferrule.hosted.mcp import remote as bounds
from ferrule.hosted.mcp.remote import Limits
from ferrule.testing import ScriptedModel, function_call
from tests.hosted.remote import ECHO, HOST, SECRET, SERVER, Remote, items_of, remote, served_mcp
from tests.mcp.web import Asked, Reply, result_of
from tests.responses.serving import Json, Served

pytest.importorskip("mcp")
SOON = Limits(list_s=0.5, silent_s=0.5, call_s=0.5)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="module")
def running() -> Iterator[Remote]:
    with remote() as found:
        yield found


@pytest.fixture
def server(running: Remote) -> Remote:
    running.tools, running.asked, running.replies = [ECHO], [], {}
    return running


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, server: Remote) -> AsyncIterator[Served]:
    async with served_mcp(tmp_path, model, server.hosts) as here:
        yield here


@pytest.fixture
async def hasty(tmp_path: Path, model: ScriptedModel, server: Remote) -> AsyncIterator[Served]:
    """One that waits for nobody long."""
    async with served_mcp(tmp_path, model, server.hosts, limits=SOON) as here:
        yield here


async def listed(here: Served, **changes: object) -> Json:
    """What the client is told of the list."""
    here.model.add("Done.")
    ledger = await here.ask(tools=[SERVER | changes])
    assert ledger.object["status"] == "completed"
    (item,) = items_of(ledger.object, "mcp_list_tools")
    return item


async def called(here: Served) -> Json:
    """What the client is told of a call."""
    here.model.add([function_call("mcp__docs__echo", {"text": "hi"})], "Done.")
    ledger = await here.ask(tools=[SERVER])
    assert ledger.object["status"] == "completed", ledger.object
    (item,) = items_of(ledger.object, "mcp_call")
    return item


def events(*messages: Json) -> Reply:
    body = "".join(f"event: message\ndata: {json.dumps(message)}\n\n" for message in messages)
    return 200, {"content-type": "text/event-stream"}, body.encode()


def answer(asked: Asked) -> Json:
    return {"jsonrpc": "2.0", "id": asked.json["id"], "result": {"content": [{"type": "text", "text": "late"}]}}


async def test_a_server_that_never_answers_holds_up_nobody_else(hasty: Served, server: Remote) -> None:
    held, done = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(asked: Asked) -> Reply:
        loop.call_soon_threadsafe(held.set)
        done.wait(60)
        return 202, {}, b""

    server.replies["initialize"] = hold
    waiting = asyncio.create_task(listed(hasty))
    await held.wait()
    hasty.model.add("Done.")
    assert (await hasty.ask()).object["status"] == "completed"
    hasty.model.add("Done.")
    item = await waiting
    done.set()
    assert "within 0.5 seconds" in item["error"] and "timeout" not in item["error"]


@pytest.mark.parametrize(
    ("method", "reply", "says"),
    [
        ("initialize", lambda asked: (200, {"content-type": "text/html"}, b"<html>"), "text/html"),
        ("initialize", lambda asked: (200, {}, b"<html>"), "JSON"),
        ("initialize", lambda asked: (500, {}, b"<html>"), "HTTP 500|error response"),
        ("tools/list", lambda asked: (200, {}, b'{"jsonrpc":"2.0","id":99,"result":{"tools":[]}}'), "within|list"),
        ("tools/list", lambda asked: result_of(asked, {"tools": 7}), ""),
        ("tools/list", lambda asked: (200, {}, b"[" * 9_000), "no message of the protocol"),
        ("initialize", lambda asked: (200, {"content-encoding": "gzip"}, gzip.compress(b"{}" * 9)), "packed"),
        ("initialize", lambda asked: (307, {"location": "http://other.example.com/mcp"}, b""), "redirect"),
        ("initialize", lambda asked: (302, {"location": "http://127.0.0.1:1/"}, b""), "redirect"),
        ("initialize", lambda asked: (403, {"www-authenticate": 'Bearer error="insufficient_scope"'}, b""), "403"),
        ("initialize", lambda asked: (0, {}, b"{"), ""),
    ],
)
async def test_a_server_that_lies_has_no_tools(
    hasty: Served, server: Remote, method: str, reply: Callable[[Asked], Reply], says: str
) -> None:
    server.replies[method] = reply
    item = await listed(hasty, authorization=SECRET)
    assert item["tools"] == []
    if says:
        assert any(word.lower() in item["error"].lower() for word in says.split("|")), item
    assert SECRET not in json.dumps(item)


async def test_a_list_without_end_is_cut(here: Served, server: Remote) -> None:
    server.replies["tools/list"] = lambda asked: result_of(asked, {"tools": [ECHO], "nextCursor": "x"})
    assert [tool["name"] for tool in (await listed(here))["tools"]] == ["echo"]
    many = [{**ECHO, "name": f"t{number}"} for number in range(bounds_of_list() + 1)]
    server.replies["tools/list"] = lambda asked: result_of(asked, {"tools": many})
    assert "allowed_tools" in (await listed(here))["error"]
    assert len((await listed(here, allowed_tools=["t1"]))["tools"]) == 1
    server.replies["tools/list"] = lambda asked: result_of(
        asked, {"tools": [{**ECHO, "inputSchema": {"type": "object", "x": "y" * (1 << 20)}}]}
    )
    assert "bytes" in (await listed(here))["error"]


def bounds_of_list() -> int:
    from ferrule.hosted.mcp.listing import MOST_TOOLS

    return MOST_TOOLS


async def test_notifications_without_end_are_cut(here: Served, server: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 100}}
    server.replies["tools/call"] = lambda asked: events(*[noise] * 200, answer(asked))
    assert (await called(here))["output"] == "late"
    monkeypatch.setattr(bounds, "ANSWER_BYTES", 8_000)
    item = await called(here)
    assert (item["status"], item["output"]) == ("failed", None) and item["error"]["type"] != "mcp_tool_execution_error"


async def test_a_server_that_asks_back_is_refused_politely(here: Served, server: Remote) -> None:
    def asking(asked: Asked) -> Reply:
        params = {"messages": [], "maxTokens": 1}
        sampling = {"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": params}
        question = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}
        elicit = {"jsonrpc": "2.0", "id": "e", "method": "elicitation/create", "params": question}
        return events(sampling, elicit, answer(asked))

    server.replies["tools/call"] = asking
    assert (await called(here))["output"] == "late"
    initialize = next(asked.json for asked in server.asked if asked.raw and asked.json["method"] == "initialize")
    assert not {"sampling", "elicitation", "roots"} & initialize["params"]["capabilities"].keys()
    refused = [asked.json for asked in server.asked if asked.raw and "error" in asked.json]
    assert all("result" not in one for one in refused)


async def test_a_name_that_leads_inside_is_not_reached(tmp_path: Path, model: ScriptedModel, server: Remote) -> None:
    async def inside(name: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with served_mcp(tmp_path, model, {}, resolve=inside) as here:
        item = await listed(here)
    assert "not public" in item["error"] and HOST in item["error"] and server.asked == []


async def test_a_description_shows_what_a_person_would_see(here: Served, server: Remote) -> None:
    server.tools = [{**ECHO, "description": "Say\u202e it\u200b again" + "x" * 9_000}]
    item = await listed(here)
    assert item["tools"][0]["description"].startswith("Say it again") and len(item["tools"][0]["description"]) < 9_000


async def test_connections_end_with_their_response(tmp_path: Path, model: ScriptedModel, server: Remote) -> None:
    def begin(asked: Asked) -> Reply:
        return result_of(asked, server.result(asked.json), **{"mcp-session-id": "session-1"})

    server.replies["initialize"] = begin
    async with served_mcp(tmp_path, model, server.hosts) as here:
        await called(here)
    ended = [asked for asked in server.asked if asked.method == "DELETE"]
    assert [asked.session for asked in ended] == ["session-1"]


async def test_an_error_without_blocks_has_one(here: Served, server: Remote) -> None:
    def failed(content: object) -> Callable[[Asked], Reply]:
        return lambda asked: result_of(asked, {"isError": True, "content": content})

    for content in (5, "words", [None, "x"]):
        server.replies["tools/call"] = failed(content)
        (block,) = (await called(here))["error"]["content"]
        assert block["type"] == "text" and "reported an error" in block["text"]
    server.replies["tools/call"] = failed([None, {"type": "x"}])
    assert (await called(here))["error"]["content"] == [{"type": "x"}]


async def test_a_server_that_nobody_asked_yet_is_not_blamed(
    hasty: Served, server: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_OF_OWNER", 1)
    hasty.model.add("Done.")
    ledger = await hasty.ask(tools=[SERVER, SERVER | {"server_label": "more"}])
    errors = [item["error"] for item in items_of(ledger.object, "mcp_list_tools")]
    assert errors == [None, bounds.BUSY]
