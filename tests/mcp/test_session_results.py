"""What MCP tools answer, and how a session shows it to the model: images, texts, errors, what is cut."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule import tool as own_tool
from ferrule.testing import ScriptedModel, function_call, message
from tests.mcp.sessions import WIRES, agent
from tests.mcp.stub import server, tool

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()


@pytest.mark.parametrize("wire", WIRES)
async def test_b115_an_image_is_shown_and_no_base64_is_text(wire: str, tmp_path: Path) -> None:
    result = {
        "content": [
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "f:///a.txt", "text": "hi there"}},
            {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"},
            {"type": "future"},
        ]
    }
    script = [[function_call("mcp__stub__result", {"result": result})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, wire, tmp_path, {"stub": server()}, name="gpt-5.5").run("go")
        sent = model.requests[1].raw.decode()
        answer = model.requests[1].outputs[0].text
    assert f"data:image/png;base64,{PIXEL}" in sent
    assert sent.count(PIXEL) == 3  # twice in the call's own arguments, and once as the image that is shown
    assert "hi there" in answer


@pytest.mark.parametrize("wire", WIRES)
async def test_m055_no_answer_of_a_tool_is_empty(wire: Any, tmp_path: Path) -> None:
    @own_tool(read_only=True)
    def blank() -> str:
        return ""

    @own_tool(read_only=True)
    def nothing() -> None:
        return None

    results: list[Any] = [{"content": [{"type": "text", "text": ""}]}, {"content": []}, {}]
    calls = [function_call(name) for name in ("blank", "nothing")]
    calls += [function_call("mcp__stub__result", {"result": result}) for result in results]
    with ScriptedModel([calls, [message("done")]]) as model:
        made = Agent(
            "m", tools=[blank, nothing], base_url=model.base_url, wire=wire, cwd=tmp_path,
            mcp_config={"mcpServers": {"stub": server()}},
        )  # fmt: skip
        await made.run("go")
        said = [output.text for output in model.requests[1].outputs]
    assert said == ["(no output)"] * 2 + ["(no content)"] * 3


@pytest.mark.parametrize("wire", WIRES)
async def test_m053_the_type_of_an_image_is_that_of_its_bytes(wire: str, tmp_path: Path) -> None:
    wrapped = base64.encodebytes(base64.b64decode(PIXEL) + b"\0" * 80).decode()
    blocks = [
        {"type": "image", "data": wrapped, "mimeType": "image/jpeg"},
        {"type": "image", "data": "", "mimeType": "image/png"},
    ]
    script = [[function_call("mcp__stub__result", {"result": {"content": blocks}})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, wire, tmp_path, {"stub": server()}, name="gpt-5.5").run("go")
        sent = model.requests[1].raw.decode()
        assert "without any data" in model.requests[1].outputs[0].text
    assert f'"data:image/png;base64,{"".join(wrapped.split())}"' in sent
    assert "data:image/jpeg" not in sent


async def test_wrong_arguments_are_refused_in_the_words_of_the_servers_schema(tmp_path: Path) -> None:
    script = [[function_call("mcp__stub__echo", {"text": [1]})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, "chat", tmp_path, {"stub": server()}).run("go")
        assert "text: expected a string" in model.requests[1].outputs[0].text


@pytest.mark.parametrize("wire", WIRES)
async def test_b106_names_of_properties_are_sent_back_as_the_server_knows_them(wire: str, tmp_path: Path) -> None:
    properties = {
        "uids[]": {"type": "array"},
        "projects.any": {"type": "string"},
        "名前": {"type": "string"},
        "a b": {},
    }
    odd = tool("odd", properties, annotations={"readOnlyHint": True})
    odd["inputSchema"]["required"] = ["uids[]"]
    own = {"uids[]": [1], "projects.any": "p", "名前": "n", "a b": 1}
    told = own if wire == "responses" else {"uids": [1], "projects_any": "p", "field": "n", "a_b": 1}
    script = [[function_call("mcp__stub__odd", told)], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, wire, tmp_path, {"stub": server("tools=" + json.dumps([odd]))}).run("go")
        assert json.loads(model.requests[1].outputs[0].text.removeprefix("odd: ")) == own
        (listed,) = [t for t in json.loads(model.requests[0].raw)["tools"] if "odd" in str(t)]
        parameters = listed.get("function", listed)["parameters"]
        assert set(parameters["properties"]) == set(told)
        assert parameters["required"] == [next(iter(told))]


async def test_results_are_cut_to_the_budget(tmp_path: Path) -> None:
    result = {"content": [{"type": "text", "text": "x" * 400_000}]}
    script = [[function_call("mcp__stub__result", {"result": result})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, "chat", tmp_path, {"stub": server()}).run("go")
        answer = model.requests[1].outputs[0].text
    assert len(answer) < 50_000
    assert "truncated" in answer


FOREIGN = {
    "list": {"type": "array"},
    "either": {"anyOf": [{"type": "array"}, {"type": "null"}]},
    "both": {"type": ["array", "string"]},
    "items": {"type": "array", "items": True},
    "raw": True,
    "never": False,
    "n": {"type": "integer"},
    "o": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "s": {"type": "string"},
}


@pytest.mark.parametrize("wire", WIRES)
async def test_m034_m037_m041_odd_schemas_are_sent_mended_and_their_arguments_pass(wire: str, tmp_path: Path) -> None:
    tools = json.dumps([tool("odd", FOREIGN), tool("echo", {"text": {"type": "string"}})])
    given = {"list": [1], "items": [{"a": 1}], "raw": {"b": [2]}, "n": None, "o": None, "s": "x"}
    kept = {name: value for name, value in given.items() if name != "n"}
    calls = [function_call("mcp__stub__odd", given), function_call("mcp__stub__echo", {"text": "hi"})]
    with ScriptedModel([calls, [message("done")]]) as model:
        made = agent(model, wire, tmp_path, {"stub": server(f"tools={tools}", approval="allow")})
        await made.run("go")
        (sent,) = [each for each in model.requests[0].body["tools"] if "odd" in json.dumps(each)]  # type: ignore[attr-defined]
        properties = sent.get("function", sent)["parameters"]["properties"]
        said = [output.text for output in model.requests[1].outputs]
    assert said == [f"odd: {json.dumps(kept)}", "ECHO: hi"]
    arrays = [properties["list"], properties["either"]["anyOf"][0], properties["both"], properties["items"]]
    assert all(each["items"] == {} for each in arrays)
    assert all(isinstance(each, dict) for each in properties.values())


async def test_resources_are_listed_and_read(tmp_path: Path) -> None:
    calls = [
        function_call("list_mcp_resources", {}),
        function_call("list_mcp_resources", {"server": "a"}),
        function_call("list_mcp_resources", {"server": "a", "cursor": "next"}),
        function_call("list_mcp_resource_templates", {"server": "a", "cursor": " "}),
        function_call("read_mcp_resource", {"server": "a", "uri": "memo://one"}),
        function_call("list_mcp_resources", {"cursor": "c"}),
        function_call("read_mcp_resource", {"server": "zz", "uri": "x"}),
        function_call("read_mcp_resource", {"server": "a", "uri": "memo://two"}),
        function_call("read_mcp_resource", {"server": " ", "uri": "memo://two"}),
    ]
    with ScriptedModel([calls, [message("done")]]) as model:
        await agent(model, "responses", tmp_path, {"b": server(), "a": server("pages")}).run("go")
        answers = [output.text for output in model.requests[1].outputs]
    first, second, other = (
        {"server": server, "uri": f"memo://{name}", "name": name, "mimeType": "text/plain"}
        for server, name in (("a", "one"), ("a", "two"), ("b", "one"))
    )
    assert json.loads(answers.pop(0)) == {"resources": [first, second, other]}
    assert json.loads(answers.pop(0)) == {"server": "a", "resources": [first], "nextCursor": "next"}
    assert json.loads(answers.pop(0)) == {"server": "a", "resources": [second]}
    templates = [{"server": "a", "uriTemplate": "memo://{name}", "name": "memo"}]
    assert json.loads(answers.pop(0)) == {"server": "a", "resourceTemplates": templates}
    read = json.loads(answers[0])
    assert (read["server"], read["uri"], read["contents"][0]) == (
        "a",
        "memo://one",
        {"uri": "memo://one", "text": "first"},
    )
    assert "AAAA" not in answers[0]
    assert answers[1] == "cursor can only be used when a server is specified"
    assert answers[2] == "unknown MCP server 'zz'; the servers are: a, b"
    assert "resources/read failed" in answers[3]
    assert "no such resource" in answers[3]
    assert answers[4] == "server must be provided"
