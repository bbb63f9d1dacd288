"""Remote MCP servers as a tool of the Responses API, on both upstream wires."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, function_call, message
from tests.hosted.remote import ECHO, HOST, SECRET, SERVER, URL, Remote, items_of, remote, served_mcp
from tests.mcp.web import Asked, Reply, result_of
from tests.responses.serving import WEATHER, Json, Served, asked, check_stream, events_of, kinds

pytest.importorskip("mcp")


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
    """The server as it is at first."""
    fresh = Remote()
    running.tools, running.replies, running.asked = fresh.tools, fresh.replies, fresh.asked
    return running


@pytest.fixture(params=["chat", "responses"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire, server: Remote) -> AsyncIterator[Served]:
    async with served_mcp(tmp_path, model, server.hosts, wire) as here:
        yield here


def echo(text: str) -> Json:
    return function_call("mcp__docs__echo", {"text": text})


async def test_tools_are_listed_once_and_called(here: Served, server: Remote) -> None:
    here.model.add([message("Let me see."), echo("hi")], "Done.")
    ledger = await here.engine.open(asked(tools=[SERVER]))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    listed, _, call, _ = ledger.object["output"]
    assert [item["type"] for item in ledger.object["output"]] == ["mcp_list_tools", "message", "mcp_call", "message"]
    assert listed["tools"][0] == {
        "name": "echo",
        "description": "Say it again",
        "input_schema": ECHO["inputSchema"],
        "annotations": {"readOnlyHint": True},
    }
    assert {name: call[name] for name in call if name != "id"} == {
        "type": "mcp_call",
        "status": "completed",
        "server_label": "docs",
        "name": "echo",
        "arguments": '{"text":"hi"}',
        "output": "ECHO hi",
        "error": None,
        "approval_request_id": None,
    }
    told = [kind for kind in kinds(events) if kind.startswith("mcp")]
    assert told == [
        "mcp_list_tools.in_progress", "mcp_list_tools.completed", "mcp_call.in_progress", "mcp_call_arguments.delta",
        "mcp_call_arguments.done", "mcp_call.completed",
    ]  # fmt: skip
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi"]
    here.model.add([echo("again")], "Done.")
    more = await here.ask(input="again", tools=[SERVER], previous_response_id=ledger.id)
    assert [item["type"] for item in more.object["output"]] == ["mcp_call", "message"]
    assert server.methods == ["tools/list", "tools/call", "tools/call"]
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi", "ECHO again"]


async def test_what_the_client_sends_back_is_known(here: Served, server: Remote) -> None:
    here.model.add([echo("hi")], "Done.", [echo("two")], "Done.")
    first = await here.ask(tools=[SERVER], store=False)
    replay = [{"role": "user", "content": "hi"}, *first.object["output"], {"role": "user", "content": "more"}]
    more = await here.ask(input=replay, tools=[SERVER], store=False)
    assert [item["type"] for item in more.object["output"]] == ["mcp_call", "message"]
    assert server.methods == ["tools/list", "tools/call", "tools/call"]
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi", "ECHO two"]
    assert "mcp_list_tools" not in json.dumps(here.model.last_request.body)


async def test_a_function_of_the_client_with_the_same_name_stays_the_client_s(here: Served, server: Remote) -> None:
    own = {"type": "function", "name": "mcp__docs__echo", "parameters": {"type": "object", "properties": {}}}
    here.model.add([function_call("mcp__docs__echo_2", {"text": "ours"})], [function_call("mcp__docs__echo", {})])
    ledger = await here.ask(tools=[SERVER, own])
    assert [item["type"] for item in ledger.object["output"]] == ["mcp_list_tools", "mcp_call", "function_call"]
    assert server.methods == ["tools/list", "tools/call"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["drop"], ["drop"]),
        ({"tool_names": ["echo", "drop"], "read_only": True}, ["echo"]),
        ({"read_only": False}, ["drop"]),
        ([], []),
    ],
)
async def test_only_allowed_tools_are_shown(here: Served, given: object, shown: list[str]) -> None:
    here.model.add("Done.")
    ledger = await here.ask(tools=[SERVER | {"allowed_tools": given}, WEATHER])
    assert [tool["name"] for tool in ledger.object["output"][0]["tools"]] == shown
    told = json.dumps(here.model.last_request.body["tools"])
    assert [name for name in ("echo", "drop") if f"mcp__docs__{name}" in told] == shown


async def test_a_choice_of_a_server_or_of_a_tool(here: Served) -> None:
    here.model.add([echo("a")], "Done.", [echo("b")], "Done.", "Done.")
    await here.ask(tools=[SERVER, WEATHER], tool_choice={"type": "mcp", "server_label": "docs"})
    forced, then = (request.body for request in here.model.requests)
    assert forced["tool_choice"] == "required" and "get_weather" not in json.dumps(forced["tools"])
    assert then.get("tool_choice", "auto") == "auto" and "get_weather" in json.dumps(then["tools"])
    await here.ask(tools=[SERVER, WEATHER], tool_choice={"type": "mcp", "server_label": "docs", "name": "echo"})
    assert "mcp__docs__echo" in json.dumps(here.model.requests[2].body["tool_choice"])
    only = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "docs"}]}
    await here.ask(tools=[SERVER, WEATHER], tool_choice=only)
    told = json.dumps(here.model.last_request.body["tools"])
    assert ("mcp__docs__drop" in told, "get_weather" in told) == (True, False)


async def test_a_token_goes_to_the_server_and_nowhere_else(here: Served, server: Remote, tmp_path: Path) -> None:
    def tell(asked: object) -> object:
        return result_of(asked, {"content": [{"type": "text", "text": f"You sent {SECRET}, {SECRET}-2"}]})  # type: ignore[arg-type]

    server.replies["tools/call"] = tell  # type: ignore[assignment]
    for given in (SECRET, {"type": "bearer", "token": SECRET}, f"Bearer {SECRET}"):
        here.model.add([echo("hi")], "Done.")
        tool = SERVER | {"authorization": given, "headers": {"X-Key": f"{SECRET}-2"}}
        ledger = await here.engine.open(asked(tools=[tool]))
        events = await events_of(ledger)
        assert server.asked[-1].headers["authorization"] == f"Bearer {SECRET}"
        assert server.asked[-1].headers["x-key"] == f"{SECRET}-2"
        assert ledger.object["tools"] == [SERVER] and "You sent *****" in json.dumps(ledger.object)
        assert SECRET not in json.dumps([events, [request.body for request in here.model.requests]])
        await here.engine.retrieve(ledger.id)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in kept and HOST.encode() in kept


async def test_words_that_choose_tools_are_no_secrets_in_their_names(here: Served, server: Remote) -> None:
    def tell(asked: Asked) -> Reply:
        text = f"ran {asked.json['params']['name'][:5]}, key {SECRET}"
        return result_of(asked, {"content": [{"type": "text", "text": text}], "structuredContent": {"name": SECRET}})

    server.replies["tools/call"] = tell
    for chosen in (
        {"server_url": f"{URL}?tools=read_documents&key={SECRET}"},
        {"headers": {"X-MCP-Tools": "description", "X-Key": SECRET}},
        {"headers": {"X-Set": "documents", "X-Form": "inputSchema"}, "authorization": SECRET},
    ):
        server.tools = [ECHO | {"name": "read_documents", "description": f"Read, with {SECRET}"}]
        here.model.add([function_call("mcp__docs__read_documents", {"text": "x"})], "Done.")
        ledger = await here.ask(tools=[SERVER | chosen])
        (listed,) = items_of(ledger.object, "mcp_list_tools")
        (call,) = items_of(ledger.object, "mcp_call")
        (tool,) = listed["tools"]
        assert (tool["name"], tool["description"]) == ("read_documents", "Read, with *****")
        assert call["status"] == "completed" and "ran read_, key *****" in call["output"]
        assert SECRET not in json.dumps(ledger.object)


async def test_a_scheme_in_capitals_is_one(here: Served, server: Remote) -> None:
    here.model.add("Done.")
    ledger = await here.ask(tools=[SERVER | {"server_url": URL.replace("http", "HTTP")}])
    assert items_of(ledger.object, "mcp_list_tools")[0]["error"] is None


async def test_a_server_that_does_not_list_has_no_tools(here: Served, server: Remote) -> None:
    server.replies["initialize"] = lambda asked: (401, {"www-authenticate": f'Bearer realm="{SECRET}"'}, b"")
    here.model.add("I cannot.")
    ledger = await here.engine.open(asked(tools=[SERVER | {"authorization": SECRET}], tool_choice="required"))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    assert ledger.object["status"] == "completed"
    (listed,) = items_of(ledger.object, "mcp_list_tools")
    assert listed["tools"] == [] and "401" in listed["error"] and "authorization" in listed["error"]
    assert "mcp_list_tools.failed" in kinds(events) and "mcp_list_tools.completed" not in kinds(events)
    assert SECRET not in json.dumps(events)
    server.replies.clear()
    here.model.add("Now I can.")
    more = await here.ask(tools=[SERVER], previous_response_id=ledger.id)
    assert items_of(more.object, "mcp_list_tools")[0]["error"] is None


def rpc_error(asked: Asked, error: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": asked.json["id"], "error": error}).encode()


async def test_errors_of_a_call_are_typed(here: Served, server: Remote) -> None:
    fault = {"content": [{"type": "text", "text": "No such page"}], "isError": True}
    refused = {"code": -32602, "message": "Unknown tool: echo"}
    for answer, error in (
        (lambda asked: result_of(asked, fault), {"type": "mcp_tool_execution_error", "content": fault["content"]}),
        (
            lambda asked: (200, {}, rpc_error(asked, refused)),
            {"type": "mcp_protocol_error", "code": -32602},
        ),
        (lambda asked: (503, {"content-type": "text/plain"}, b"down"), {"type": "http_error", "code": 503}),
        (lambda asked: (429, {}, b'{"detail": "slower"}'), {"type": "http_error", "code": 429}),
        (lambda asked: (400, {}, rpc_error(asked, refused)), {"type": "mcp_protocol_error", "code": -32602}),
    ):
        server.replies["tools/call"] = answer
        here.model.add([echo("hi")], "Done.")
        ledger = await here.engine.open(asked(tools=[SERVER]))
        events = await events_of(ledger)
        check_stream(events, ledger.object)
        (call,) = items_of(ledger.object, "mcp_call")
        assert (call["status"], call["output"]) == ("failed", None)
        assert {name: call["error"][name] for name in error} == error
        assert ledger.object["status"] == "completed" and "mcp_call.failed" in kinds(events)
        (told,) = here.model.last_request.outputs
        assert "failed" in told.text or "No such page" in told.text


@pytest.mark.parametrize(
    ("changes", "param", "status", "says"),
    [
        ({"server_url": None, "connector_id": "connector_gmail"}, "connector_id", 422, "connectors"),
        ({"server_url": None, "tunnel_id": "t"}, "tunnel_id", 422, "tunnels"),
        ({"server_url": None}, "server_url", 400, "server_url"),
        ({"server_url": "ftp://mcp.example.com"}, "server_url", 400, "https"),
        ({"server_url": "https://127.0.0.1/mcp"}, "server_url", 400, "address"),
        ({"server_url": "https://[::1]/mcp"}, "server_url", 400, "address"),
        ({"server_url": "https://2130706433/mcp"}, "server_url", 400, "address"),
        ({"server_url": "https://elsewhere.org/mcp"}, "server_url", 400, "allowed"),
        ({"server_url": f"http://{HOST}:8080/mcp"}, "server_url", 400, "8080"),
        ({"server_url": f"http://me:{SECRET}@{HOST}/mcp"}, "server_url", 400, "password"),
        ({"headers": {"a b": "c"}}, "headers", 400, "characters"),
        ({"headers": {"X-A": f"{SECRET}\r\nX-B: 1"}}, "headers", 400, "characters"),
        ({"headers": {"Host": "other"}}, "headers", 400, "host"),
        ({"allowed_tools": {"readonly": True}}, "allowed_tools", 400, "readonly"),
        ({"authorization": f"{SECRET} x"}, "authorization", 400, "ASCII"),
        ({"authorization": SECRET, "headers": {"Authorization": "x"}}, "authorization", 400, "not both"),
    ],
)
async def test_a_server_that_cannot_be_is_refused(
    tmp_path: Path, model: ScriptedModel, changes: Json, param: str, status: int, says: str
) -> None:
    async with served_mcp(tmp_path, model, {}) as here:
        tool = {name: value for name, value in (SERVER | changes).items() if value is not None}
        with pytest.raises(Exception, match=says) as raised:
            await here.ask(tools=[WEATHER, tool])
        assert (raised.value.status, raised.value.param) == (status, f"tools[1].{param}")  # type: ignore[attr-defined]
        assert SECRET not in str(raised.value) and model.requests == []


async def test_a_server_without_a_label_is_called_by_its_host(here: Served) -> None:
    here.model.add([function_call("mcp__mcp_example_com__echo", {"text": "hi"})], "Done.")
    tool = {name: value for name, value in SERVER.items() if name != "server_label"}
    ledger = await here.ask(tools=[tool])
    (call,) = items_of(ledger.object, "mcp_call")
    assert (call["server_label"], call["output"]) == ("mcp_example_com", "ECHO hi")
    assert ledger.object["tools"] == [SERVER | {"server_label": "mcp_example_com"}]


async def test_two_servers_have_two_names(here: Served) -> None:
    with pytest.raises(Exception, match="two servers") as raised:
        await here.ask(tools=[SERVER, SERVER | {"server_url": f"{URL}/2"}])
    assert raised.value.param == "tools[1].server_label"  # type: ignore[attr-defined]
