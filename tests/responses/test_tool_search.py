"""Tool search that is run here: over functions, namespaces and MCP servers, for models that have none."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.responses.ledger import Ledger
from ferrule.testing import ScriptedModel, function_call
from tests.hosted.remote import SERVER, Remote, remote, served_mcp
from tests.responses.serving import WEATHER, Json, Served, asked, check_stream, events_of

pytest.importorskip("mcp")

SEARCH: Json = {"type": "tool_search"}
LATER: Json = {"defer_loading": True}
PARAMETERS: Json = {"type": "object", "properties": {"id": {"type": "string"}}}
CRM: Json = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers and their orders",
    "tools": [
        {"type": "function", "name": "get_customer", "description": "One customer", "parameters": PARAMETERS} | LATER,
        {"type": "function", "name": "list_orders", "description": "All orders", "parameters": PARAMETERS} | LATER,
        {"type": "function", "name": "ping", "description": "Is it there"},
    ],
}
DOCS: Json = SERVER | LATER | {"server_description": "The manual"}


@pytest.fixture(scope="module")
def running() -> Iterator[Remote]:
    with remote() as found:
        yield found


@pytest.fixture
def server(running: Remote) -> Remote:
    """A server with very many tools."""
    fresh = Remote()
    many = [
        {"name": f"widget_{number}", "description": f"Turn widget number {number}", "inputSchema": PARAMETERS}
        for number in range(400)
    ]
    running.tools, running.replies, running.asked = [*fresh.tools, *many], fresh.replies, fresh.asked
    return running


@pytest.fixture(params=["chat", "responses"])
def wire(request: pytest.FixtureRequest) -> Wire:
    """Over the first the model knows functions alone, over the second the search and namespaces."""
    found: Wire = request.param
    return found


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire, server: Remote) -> AsyncIterator[Served]:
    async with served_mcp(tmp_path, model, server.hosts, wire) as here:
        yield here


@pytest.fixture
async def chat(tmp_path: Path, model: ScriptedModel, server: Remote) -> AsyncIterator[Served]:
    async with served_mcp(tmp_path, model, server.hosts) as here:
        yield here


def search(query: str, wire: Wire = "chat", **more: object) -> Json:
    arguments = {"query": query, **more}
    native = {"type": "tool_search_call", "execution": "client", "arguments": arguments}
    return native if wire == "responses" else function_call("tool_search", arguments)


def names(body: Mapping[str, Any]) -> list[str]:
    """The names of the tools that a request to the model lists."""
    named = [tool.get("function", tool) for tool in body.get("tools", ())]
    return [str(tool.get("name", tool.get("type"))) for tool in named]


def answers(body: Mapping[str, Any]) -> list[list[str]]:
    """The names of the tools in each answer to a search that a request tells of."""
    given = [item["tools"] for item in body.get("input", ()) if item["type"] == "tool_search_output"]
    texts = [message["content"] for message in body.get("messages", ()) if message["role"] == "tool"]
    given += [json.loads(text) for text in texts if text.startswith("[")]
    return [[one["name"] for tool in tools for one in tool.get("tools", [tool])] for tools in given]


def kinds(ledger: Ledger) -> list[str]:
    return [item["type"] for item in ledger.object["output"]]


def replay(ledger: Ledger) -> list[Json]:
    return [{"role": "user", "content": "hi"}, *ledger.object["output"], {"role": "user", "content": "more"}]


FOUND = ["tool_search_call", "tool_search_output"]


async def test_what_is_found_is_told_and_can_be_called(here: Served, wire: Wire) -> None:
    called = "list_orders" if wire == "responses" else "crm__list_orders"
    space = {"namespace": "crm"} if wire == "responses" else {}
    here.model.add([search("all orders", wire, limit=1)], [function_call(called, {"id": "7"}) | space])
    ledger = await here.engine.open(asked(tools=[SEARCH, CRM, WEATHER | LATER]))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    call, output, wanted = ledger.object["output"]
    assert {**call, "id": ""} == {
        "id": "", "type": "tool_search_call", "status": "completed", "execution": "server", "call_id": None,
        "arguments": {"query": "all orders", "limit": 1},
    }  # fmt: skip
    assert call["id"].startswith("tsc_") and output["id"].startswith("tso_")
    (group,) = output["tools"]
    assert (output["type"], output["execution"], output["call_id"]) == ("tool_search_output", "server", None)
    assert (group["type"], group["name"], group["description"]) == ("namespace", "crm", CRM["description"])
    (found,) = group["tools"]
    assert (found["name"], found["parameters"], found["defer_loading"]) == ("list_orders", PARAMETERS, True)
    assert (wanted["type"], wanted["namespace"], wanted["name"]) == ("function_call", "crm", "list_orders")
    first, second = (dict[str, Any](request.body) for request in here.model.requests)
    assert "crm (2 tools): Customers and their orders" in json.dumps(first["tools"])
    assert "get_weather" in json.dumps(first["tools"])
    assert answers(second) == [[called]]
    if wire == "responses":  # to the model's server this one is the client
        assert [item.get("execution") for item in second["input"][1:]] == ["client", "client"]
    before = ["tool_search", "crm" if wire == "responses" else "crm__ping"]
    assert names(first) == before
    assert names(second) == (before if wire == "responses" else [*before, "crm__list_orders"])


async def test_thousands_of_tools_of_a_server(chat: Served, server: Remote) -> None:
    here, tools = chat, [SEARCH, CRM, DOCS]
    here.model.add([search("widget 70", limit=2)], [function_call("mcp__docs__widget_70", {"id": "x"})], "Done.")
    ledger = await here.engine.open(asked(tools=tools))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    assert kinds(ledger) == ["mcp_list_tools", *FOUND, "mcp_call", "message"]
    listed, _, output, call, _ = ledger.object["output"]
    assert len(listed["tools"]) == 402 and listed["error"] is None
    (group,) = output["tools"]
    assert (group["type"], group["name"], group["description"]) == ("namespace", "docs", "The manual")
    assert group["tools"][0]["name"] == "widget_70" and len(group["tools"]) == 2
    assert (call["name"], call["status"]) == ("widget_70", "completed")
    first, second, _ = (request.body for request in here.model.requests)
    assert "docs (402 tools): The manual" in json.dumps(first["tools"])
    assert len(json.dumps(first)) < 4000 and names(first) == ["tool_search", "crm__ping"]
    assert names(second)[2] == "mcp__docs__widget_70" and len(names(second)) == 4
    assert server.methods == ["tools/list", "tools/call"]


async def test_without_a_search_so_many_tools_are_refused(chat: Served) -> None:
    chat.model.add("Sorry.")
    ledger = await chat.ask(tools=[DOCS])
    assert "or defer them: defer_loading, and the tool tool_search" in ledger.object["output"][0]["error"]


async def test_a_chain_keeps_what_was_found(here: Served, wire: Wire) -> None:
    tools = [SEARCH, CRM, WEATHER | LATER, DOCS]
    here.model.add([search("echo", wire, limit=1)], [search("weather", wire, limit=1)], "Found.")
    first = await here.ask(tools=tools)
    assert kinds(first) == ["mcp_list_tools", *FOUND, *FOUND, "message"]
    found = ["mcp__docs__echo", "get_weather"]
    ways: list[Json] = [{"previous_response_id": first.id}, {"input": replay(first), "store": False}]
    for continuing in ways:
        call = function_call("mcp__docs__echo", {"text": "a"})
        here.model.add([call], [search("widget 70", wire, limit=1)], "Done.")
        ledger = await here.ask(**{"input": "more", **continuing}, tools=tools)
        assert kinds(ledger) == ["mcp_call", *FOUND, "message"]
        *_, before, _, after = (request.body for request in here.model.requests)
        assert answers(before) == [[one] for one in found]
        assert answers(after) == [*answers(before), ["mcp__docs__widget_70"]]
        if wire == "chat":
            assert names(before) == ["tool_search", "crm__ping", *found]
            assert names(after) == [*names(before), "mcp__docs__widget_70"]


async def test_a_call_of_a_deferred_function_names_it_twice(here: Served, wire: Wire) -> None:
    """As clients of the API know them, openai-agents among them. The model is told of it without a namespace."""
    called = function_call("get_weather", {"city": "Rome"})
    here.model.add([search("weather", wire)], [called], "Sunny.")
    tools = [SEARCH, WEATHER | LATER, WEATHER | {"name": "ping"}]
    ledger = await here.engine.open(asked(tools=tools, store=False))
    check_stream(await events_of(ledger), ledger.object)
    call: Json = ledger.object["output"][-1]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "get_weather", "get_weather")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    given: Any = ledger.object["output"]
    shuffled: list[Json] = [dict(reversed(item.items())) for item in given]
    shuffled[1]["tools"] = [dict(reversed(shuffled[1]["tools"][0].items()))]
    await here.ask(input=[{"role": "user", "content": "hi"}, *shuffled, output], tools=tools, store=False)
    first, second = (dict[str, Any](request.body) for request in here.model.requests[1:])
    told = second.get("messages") or [item for item in second["input"] if item.get("name")]
    assert '"namespace"' not in json.dumps(told)
    if wire == "chat":  # what the model's server has cached of the answer stands
        assert second["messages"][2]["content"] == first["messages"][2]["content"]


async def test_items_without_ids_are_paired_in_their_order(chat: Served) -> None:
    chat.model.add([search("all orders", limit=1)], [search("weather", limit=1)], "Done.", "More.")
    tools = [SEARCH, CRM, WEATHER | LATER]
    first = await chat.ask(tools=tools, store=False)
    bare = [{key: value for key, value in item.items() if key != "id"} for item in replay(first)]
    await chat.ask(input=bare, tools=tools, store=False)
    assert answers(chat.model.last_request.body) == [["crm__list_orders"], ["get_weather"]]
    assert names(chat.model.last_request.body)[2:] == ["crm__list_orders", "get_weather"]
    with pytest.raises(ApiError, match="has no output"):
        await chat.ask(input=bare[:2], tools=tools, store=False)
    with pytest.raises(ApiError, match="precedes this tool_search_output"):
        await chat.ask(input=bare[2:], tools=tools, store=False)


CALL: Json = {"type": "tool_search_call", "arguments": {}}


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([7], "input[1].tools[0]"),
        (None, "input[1].tools"),
        ([{"type": "namespace", "name": "docs"}], "input[1].tools[0].tools"),
        ([{"type": "namespace", "name": "docs", "tools": [{"type": "mcp", "server_label": "a"}]}], None),
        ([{"type": "weird"}, {"type": "mcp", "server_label": "b"}], None),
    ],
)
@pytest.mark.parametrize("declared", [[SEARCH, CRM], []])
async def test_answers_with_anything_in_them(
    chat: Served, tools: object, param: str | None, declared: list[Json]
) -> None:
    chat.model.add("Done.")
    given = [CALL, {"type": "tool_search_output", "tools": tools}]
    if param is None:
        assert (await chat.ask(input=given, tools=declared)).object["status"] == "completed"
        return
    with pytest.raises(ApiError) as raised:
        await chat.ask(input=given, tools=declared)
    assert raised.value.param == param


async def test_a_tool_that_is_not_declared_any_more_is_gone(chat: Served) -> None:
    chat.model.add([search("echo", limit=1)], [search("weather", limit=1)], "Done.", "More.", "Again.")
    first = await chat.ask(tools=[SEARCH, DOCS, WEATHER | LATER])
    await chat.ask(input="more", tools=[SEARCH, CRM], previous_response_id=first.id)
    assert names(chat.model.last_request.body) == ["tool_search", "crm__ping"]
    await chat.ask(input="more", tools=[WEATHER], previous_response_id=first.id)
    assert names(chat.model.last_request.body) == ["get_weather"]


async def test_a_deferred_tool_may_be_called_unasked(chat: Served, server: Remote) -> None:
    ours, first, second = function_call("mcp__docs__echo", {"text": "hi"}), "get_weather", "crm__list_orders"
    chat.model.add([ours], [function_call(first, {"city": "Rome"}), function_call(second, {"id": "7"})])
    ledger = await chat.engine.open(asked(tools=[SEARCH, DOCS, CRM, WEATHER | LATER]))
    check_stream(await events_of(ledger), ledger.object)
    assert kinds(ledger) == ["mcp_list_tools", "mcp_call", "function_call", "function_call"]
    called = [(item["namespace"], item["name"]) for item in ledger.object["output"][2:]]
    assert called == [("get_weather", "get_weather"), ("crm", "list_orders")]
    assert server.methods == ["tools/list", "tools/call"]


async def test_a_freeform_tool_is_found_with_its_grammar(chat: Served) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    year = {"type": "custom", "name": "year", "description": "Go to a year", "format": form} | LATER
    chat.model.add(
        [search("year")], [function_call("year", {"input": "soon"})], [function_call("year", {"input": "1984"})]
    )
    ledger = await chat.ask(tools=[SEARCH, year])
    found, call = ledger.object["output"][1:]
    assert (found["tools"][0]["type"], found["tools"][0]["format"]) == ("custom", form)
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "year", "1984")


async def test_approvals_of_what_was_found(chat: Served) -> None:
    asking = {name: value for name, value in DOCS.items() if name != "require_approval"}
    chat.model.add([search("echo")], [function_call("mcp__docs__echo", {"text": "hi"})], "Done.")
    first = await chat.ask(tools=[SEARCH, asking])
    request = first.object["output"][-1]
    assert request["type"] == "mcp_approval_request"
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    second = await chat.ask(input=[answer], tools=[SEARCH, asking], previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message"]
    assert "mcp__docs__echo" in names(chat.model.last_request.body)


@pytest.mark.parametrize(
    "arguments", ["", "{}", "[]", "not JSON", '{"query": 7}', '{"query": ""}', '{"query": "zzz", "limit": -1}']
)
async def test_a_call_that_makes_no_sense_finds_nothing(chat: Served, arguments: str) -> None:
    chat.model.add([function_call("tool_search", arguments)], "Done.")
    ledger = await chat.ask(tools=[SEARCH, CRM])
    assert kinds(ledger) == [*FOUND, "message"] and ledger.object["output"][1]["tools"] == []


async def test_searches_count_as_calls(chat: Served) -> None:
    chat.model.add([search("orders")], [search("customers")], "Done.")
    ledger = await chat.ask(tools=[SEARCH, CRM], max_tool_calls=1)
    first, second, *_ = (request.body for request in chat.model.requests)
    assert "tool_search" in names(first) and "tool_search" not in names(second)
    assert kinds(ledger) == FOUND  # the second call is no call of the client's


async def test_choices(chat: Served) -> None:
    chat.model.add(*["Done."] * 4)
    tools = [SEARCH, CRM, WEATHER | LATER]
    for choice, listed in (
        ({"type": "tool_search"}, ["tool_search", "crm__ping"]),
        ({"type": "function", "name": "get_weather"}, ["tool_search", "crm__ping", "get_weather"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "tool_search"}]}, ["tool_search"]),
    ):
        await chat.ask(tools=tools, tool_choice=choice)
        assert names(chat.model.last_request.body) == listed
        forced = chat.model.last_request.body.get("tool_choice")
        assert (choice["type"] == "allowed_tools") == (forced in (None, "auto"))


async def test_choices_of_a_deferred_server(chat: Served) -> None:
    tools, docs = [SEARCH, CRM, DOCS], {"type": "mcp", "server_label": "docs"}
    chat.model.add("Done.")
    await chat.ask(tools=tools, tool_choice=docs | {"name": "echo"})
    assert names(chat.model.last_request.body) == ["tool_search", "crm__ping", "mcp__docs__echo"]
    assert "mcp__docs__echo" in json.dumps(chat.model.last_request.body["tool_choice"])
    chat.model.add("Done.")
    await chat.ask(tools=tools, tool_choice=docs)
    assert "tool_search" in json.dumps(chat.model.last_request.body["tool_choice"])
    for allowed, found in ((docs, []), ({"type": "namespace", "name": "crm"}, ["crm__list_orders"])):
        chat.model.add([search("all orders", limit=1)], "Done.")
        await chat.ask(tools=tools, tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [allowed]})
        first, second = (request.body for request in chat.model.requests[-2:])
        assert names(second) == [*names(first), *found] and answers(second) == [found]
        assert ("crm__ping" in names(first)) == bool(found)


async def test_where_nothing_is_deferred_there_is_no_search(chat: Served) -> None:
    chat.model.add("Done.", "Done.")
    await chat.ask(tools=[SEARCH, WEATHER])
    assert names(chat.model.last_request.body) == ["get_weather"]
    await chat.ask(tools=[WEATHER | LATER])
    assert names(chat.model.last_request.body) == ["get_weather"]


async def test_a_search_of_the_client_stays_the_client_s(chat: Served) -> None:
    chat.model.add([search("weather")], "Done.")
    tools = [SEARCH | {"execution": "client", "description": "Mine"}, WEATHER | LATER]
    first = await chat.ask(tools=tools)
    (call,) = first.object["output"]
    assert (call["type"], call["execution"]) == ("tool_search_call", "client") and call["call_id"]
    output = {"type": "tool_search_output", "execution": "client", "call_id": call["call_id"], "tools": [CRM]}
    await chat.ask(input=[output], tools=tools, previous_response_id=first.id)
    assert "crm__ping" in names(chat.model.last_request.body)
    assert json.loads(chat.model.last_request.outputs[0].text) == [CRM]


@pytest.mark.parametrize("other", [SEARCH | {"execution": "client"}, WEATHER | {"name": "tool_search"}])
async def test_two_tools_of_that_name_are_refused(chat: Served, other: Json) -> None:
    with pytest.raises(ApiError, match="two tools are called 'tool_search'"):
        await chat.ask(tools=[SEARCH, CRM, other])


async def test_a_namespace_of_a_server_s_name_is_refused(chat: Served) -> None:
    with pytest.raises(ApiError, match=r"tools\[2\].server_label: a namespace is called 'crm', too"):
        await chat.ask(tools=[SEARCH, CRM, DOCS | {"server_label": "crm"}])


async def test_what_is_told_of_very_many_tools_is_bounded(chat: Served) -> None:
    many = [WEATHER | LATER | {"name": f"f{number}", "description": "words " * 99} for number in range(300)]
    chat.model.add("Done.")
    await chat.ask(tools=[SEARCH, *many])
    told: Json
    (told,) = chat.model.last_request.body["tools"]  # type: ignore[misc]
    text = told["function"]["description"]
    assert len(text) < 9000 and text.endswith("more") and "- f0: words" in text
