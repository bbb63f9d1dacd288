"""How a connection begins: what servers leave out of their greeting, and what we offer in ours."""

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.mcp.client import MCPClient, offered_roots
from ferrule.mcp.errors import McpFailure
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.mcp_settings import McpServerSettings
from tests.mcp.stub import server
from tests.mcp.test_client import client, settings, text_of
from tests.mcp.web import Asked, Reply, mcp_result, result_of, stub


def settings_of(url: str, **more: Any) -> McpServerSettings:
    return McpServerSettings(url=url, **more)


VERSION = {"protocolVersion": "2025-06-18"}
NAME = {"name": "x", "version": "1"}


@pytest.mark.parametrize(
    "greeting",
    [
        {**VERSION, "capabilities": {}, "serverInfo": {"name": "x"}},
        {**VERSION, "capabilities": None, "serverInfo": {"name": "x"}},
        {**VERSION, "capabilities": {"tools": None, "resources": True, "logging": []}, "serverInfo": NAME},
        {**VERSION, "capabilities": {"tools": {"listChanged": "yes"}}, "serverInfo": {}, "instructions": None},
        {**VERSION, "serverInfo": None},
        VERSION,
        {"capabilities": {"tools": {}}, "serverInfo": NAME},
        {"protocolVersion": None},
        {"serverInfo": "x", "instructions": ["a"], "_meta": 1},
        {},
    ],
    ids=json.dumps,
)
async def test_m052_an_incomplete_greeting_hurts_nobody(greeting: dict[str, Any]) -> None:
    async with client(f"greeting={json.dumps(greeting)}") as local:
        assert "echo" in [tool.name for tool in await local.list_tools()]
        assert text_of(await local.call_tool("echo", {"text": "hi"})) == "ECHO: hi"

    def answer(asked: Asked) -> Reply:
        return result_of(asked, greeting) if asked.json.get("method") == "initialize" else mcp_result(asked)

    with stub(answer) as url:
        async with MCPClient("web", settings_of(url)) as remote:
            assert text_of(await remote.call_tool("echo", {"text": "hi"})) == "ECHO: hi"


async def test_m052_a_version_that_nobody_knows_is_named() -> None:
    with pytest.raises(McpFailure, match=r"it speaks version '1\.0' of the protocol, and we know 2024") as failed:
        await client('greeting={"protocolVersion": "1.0"}').connect()
    assert failed.value.kind == "refused"


@pytest.mark.parametrize("answer", [{"result": None}, {"result": [1]}, {"error": "boom"}, {"error": None}, {}])
async def test_m052_an_answer_that_is_none_is_told_at_once(answer: dict[str, Any], tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        f"import json, sys\nfor line in sys.stdin:\n    m = json.loads(line)\n"
        f"    print(json.dumps({{'jsonrpc': '2.0', 'id': m['id'], **{answer!r}}}), flush=True)\n"
    )
    made = McpServerSettings(command=server()["command"], args=("-S", str(program)))
    with pytest.raises(McpFailure, match=r"refused the connection: the server answered: (neither|boom)"):
        await MCPClient("odd", made).connect()


async def test_m052_a_server_that_does_not_name_json_rpc_is_understood(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "import json, sys\nfor line in sys.stdin:\n    m = json.loads(line)\n"
        "    if 'id' in m: print(json.dumps({'id': m['id'], 'result': {'tools': [{'name': 'a'}]}}), flush=True)\n"
    )
    async with MCPClient("odd", McpServerSettings(command=server()["command"], args=("-S", str(program)))) as odd:
        assert [tool.name for tool in await odd.list_tools()] == ["a"]


async def test_a_server_of_resources_alone_has_no_tools_and_is_no_failure() -> None:
    def answer(asked: Asked) -> Reply:
        message = asked.json
        if message.get("method") == "initialize":
            return result_of(asked, {**VERSION, "capabilities": {"resources": {}}, "serverInfo": NAME})
        if message.get("method") == "tools/list":
            error = {"code": -32601, "message": "Method not found"}
            return 200, {}, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
        return mcp_result(asked)

    with stub(answer) as url:
        async with MCPClient("web", settings_of(url)) as remote:
            assert await remote.list_tools() == []
            assert await remote.has_resources()


async def told(made: MCPClient, *methods: str) -> dict[str, Any]:
    async with made:
        value: dict[str, Any] = json.loads(text_of(await made.call_tool("client", {"methods": methods})))
        return value


async def test_m047_the_workspace_is_offered_as_a_root_and_sampling_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    said = await told(client(cwd=folder), "roots/list", "sampling/createMessage", "ping", "x/unknown")
    assert said["capabilities"]["roots"] is not None
    assert "sampling" not in said["capabilities"]
    assert said["roots/list"]["result"] == {"roots": [{"uri": folder.as_uri(), "name": "a b"}]}
    assert said["sampling/createMessage"]["error"]["message"] == "Sampling not supported"
    assert said["ping"]["result"] == {}
    assert said["x/unknown"]["error"]["code"] == -32601


async def test_m047_a_call_that_asks_for_sampling_on_the_newer_protocol_fails_with_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"
    wanted = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    asking = {"resultType": "input_required", "inputRequests": {"q": wanted}, "requestState": "s"}
    async with client("modern", f"received={log}") as stub:
        with pytest.raises(RespondToModel, match=r"stub/result failed: .* not offered here \(Sampling not supported\)"):
            await stub.call_tool("result", {"result": asking})
        assert text_of(await stub.call_tool("echo", {"text": "on"})) == "ECHO: on"
    assert "clientCapabilities" in log.read_text() and '"sampling"' not in log.read_text()


async def test_m047_roots_can_be_others_and_none(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    said = await told(MCPClient("stub", settings(roots=["data", "/srv"]), cwd=str(tmp_path)), "roots/list")
    uris = [root["uri"] for root in said["roots/list"]["result"]["roots"]]
    assert uris == [(tmp_path / "data").as_uri(), "file:///srv"]
    said = await told(client(roots=[]), "roots/list")
    assert "roots" not in said["capabilities"]
    assert said["roots/list"]["error"]["message"] == "List roots not supported"


def test_m047_a_remote_server_is_told_of_no_folder_unasked() -> None:
    assert offered_roots(settings_of("https://mcp.example/x"), "/work") == ()
    assert offered_roots(settings_of("https://mcp.example/x", roots=(".",)), "/work") == ("/work",)
    assert offered_roots(settings_of("http://127.0.0.1:1/mcp"), "/work") == ("/work",)
