"""Finding tools among thousands, over all wires and for somebody else's loop."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule import Agent, Toolset
from ferrule.protocol.items import ToolSearchOutput, make_item
from ferrule.protocol.json_text import JsonValue
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request
from ferrule.tools.registry import ToolRegistryBuilder
from ferrule.tools.search import MAX_LISTED, DeferredTool, ToolIndex, ToolSearch, as_loaded_specs
from tests.builtin.many import ManyTools, spec

WIRES = ("responses", "chat", "messages")


_made: list[ToolIndex] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """An index that is left open warns in whatever test runs next."""
    yield
    while _made:
        _made.pop().close()


def index(*tools: DeferredTool) -> ToolIndex:
    _made.append(ToolIndex(tools))
    return _made[-1]


def names(found: ToolIndex, query: str, limit: int = 8) -> list[str]:
    return [hit.tool.flat_name for hit in found.search(query, limit)]


@pytest.fixture
def few() -> ToolIndex:
    return index(
        DeferredTool(spec("createEvent", "Adds an appointment.", startTime="string"), "mcp__calendar", title="Book"),
        DeferredTool(spec("delete_event", "Removes an appointment.", id="string"), "mcp__calendar"),
        DeferredTool(spec("search", "Finds e-mails about events.", text="string"), "mcp__mail"),
        DeferredTool(spec("roll_dice", "Throws dice.", sides="integer")),
        DeferredTool(spec("überweisen", "Sends money.", iban="string")),
    )


def test_every_field_is_searched_and_names_count_most(few: ToolIndex) -> None:
    assert names(few, "event")[-1] == "mcp__mail__search"
    assert names(few, "deleting events")[0] == "mcp__calendar__delete_event"
    assert names(few, "book") == ["mcp__calendar__createEvent"]
    assert set(names(few, "appointments")) == {"mcp__calendar__createEvent", "mcp__calendar__delete_event"}
    assert set(names(few, "calendar")) == {"mcp__calendar__createEvent", "mcp__calendar__delete_event"}
    assert names(few, "start time") == names(few, "startTime") == ["mcp__calendar__createEvent"]
    assert names(few, "mcp__mail__search")[0] == "mcp__mail__search"
    assert names(few, "uberweisen") == ["überweisen"]


@pytest.mark.parametrize(
    "query", ['"', "AND", "a OR", "NEAR(x", "*", "name:x", "-", "'; DROP TABLE tools; --", "💥", "\0", " "]
)
def test_no_query_is_an_error(few: ToolIndex, query: str) -> None:
    names(few, query)


def test_words_that_nobody_has_find_by_their_beginning(few: ToolIndex) -> None:
    assert set(names(few, "appoin")) == {"mcp__calendar__createEvent", "mcp__calendar__delete_event"}
    assert names(few, "quantum") == []
    assert names(few, "event", limit=1) == names(few, "event")[:1]


def test_groups_in_order_of_first_appearance(few: ToolIndex) -> None:
    by_name = {tool.spec.name: tool for tool in few.tools}
    picked = [by_name[name] for name in ("delete_event", "roll_dice", "search", "createEvent")]
    specs = [spec.to_responses() for spec in as_loaded_specs(picked)]
    assert [one["name"] for one in specs] == ["mcp__calendar", "roll_dice", "mcp__mail"]
    assert [tool["name"] for tool in specs[0]["tools"]] == ["delete_event", "createEvent"]
    assert all(tool["defer_loading"] is True for tool in [*specs[0]["tools"], specs[1], *specs[2]["tools"]])


def search_call(wire: str, query: object, call_id: str = "s1") -> Any:
    arguments = {"query": query}
    if wire != "responses":
        return function_call("tool_search", arguments, call_id=call_id)
    return {"type": "tool_search_call", "execution": "client", "call_id": call_id, "arguments": arguments}


async def play(wire: str, cwd: Path, script: Sequence[Any], source: ManyTools) -> list[Request]:
    """The requests that a session sends which plays the script."""
    with ScriptedModel([*script, "Done."]) as model:
        agent = Agent("m", base_url=model.base_url, wire=wire, cwd=cwd, tools=["update_plan"])  # type: ignore[arg-type]
        async with await agent.open() as session:
            session.toolset.add_source(source)
            assert (await session.run("go")).text == "Done."
        model.check()
        return model.requests


def tools_of(request: Request) -> str:
    return json.dumps(request.body.get("tools"))


@pytest.mark.parametrize("wire", WIRES)
async def test_found_tools_are_callable(wire: str, tmp_path: Path) -> None:
    source = ManyTools()
    call = (
        function_call("createEvent", {"startTime": "9"}, call_id="c1", namespace="mcp__calendar")
        if wire == "responses"
        else function_call("mcp__calendar__createEvent", {"startTime": "9"}, call_id="c1")
    )
    first, second, third = await play(wire, tmp_path, [search_call(wire, "create an appointment"), call], source)
    assert first.tool_names == ["update_plan", "tool_search"]
    assert len(tools_of(second)) < 20_000
    answer = next(output for output in third.outputs if output.call_id == "c1")
    assert answer.text == "called mcp__calendar__createEvent"
    if wire == "responses":
        assert tools_of(second) == tools_of(first), "the history tells of found tools, and the cache stays"
        assert '"type": "tool_search", "execution": "client"' in tools_of(first)
        found = next(item for item in second.items if item["type"] == "tool_search_output")
        assert (found["call_id"], found["status"], found["execution"]) == ("s1", "completed", "client")
        loaded = found["tools"]
        assert isinstance(loaded, list) and loaded[0]["type"] == "namespace" and loaded[0]["name"] == "mcp__calendar"
        assert loaded[0]["tools"][0]["name"] == "createEvent"
        assert loaded[0]["tools"][0]["parameters"]["properties"]["startTime"] == {"type": "string"}
    else:
        assert "mcp__calendar__createEvent" in second.tool_names
        assert second.tool_names[:2] == first.tool_names
        assert len(second.tool_names) <= 2 + 8


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("namespace", "name", "key"),
    [
        (None, "mcp__calendar__createEvent", (None, "mcp__calendar__createEvent")),
        ("mcp__calendar", "createEvent", (None, "mcp__calendar__createEvent")),
        (None, "crm__merge", ("crm", "merge")),
        ("crm", "merge", ("crm", "merge")),
        (None, "roll_dice", (None, "roll_dice")),
    ],
)
async def test_a_deferred_tool_works_without_a_search(
    wire: str, namespace: str | None, name: str, key: tuple[str | None, str], tmp_path: Path
) -> None:
    source = ManyTools()
    *_, last = await play(wire, tmp_path, [function_call(name, {}, call_id="c1", namespace=namespace)], source)
    assert source.handler.calls == [key]
    assert [output.text for output in last.outputs] == [f"called {key[1]}"]


@pytest.mark.parametrize("wire", WIRES)
async def test_nothing_found_and_nothing_asked(wire: str, tmp_path: Path) -> None:
    script = [search_call(wire, "quantum", "s1"), search_call(wire, " ", "s2"), search_call(wire, None, "s3")]
    first, *_, last = await play(wire, tmp_path, script, ManyTools())
    assert tools_of(last) == tools_of(first)
    if wire == "responses":
        found = [item["tools"] for item in last.items if item["type"] == "tool_search_output"]
        assert found == [[], [], []]


@pytest.mark.parametrize(("count", "deferred"), [(MAX_LISTED - 1, False), (MAX_LISTED, True)])
async def test_tools_are_deferred_beyond_the_threshold_only(count: int, deferred: bool, tmp_path: Path) -> None:
    (first,) = await play("chat", tmp_path, [], ManyTools(count))
    assert ("tool_search" in first.tool_names) is deferred
    assert len(first.tool_names) == (2 if deferred else count + 1)


def test_a_session_without_many_tools_never_meets_the_search(tmp_path: Path) -> None:
    program = (
        "import sys; from ferrule import Toolset\n"
        "with Toolset.for_model('gpt-5.5', sandbox='danger-full-access') as t: t.specs()\n"
        "print('sqlite3' in sys.modules, 'tool_search' in str(t.specs()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["False", "False"]


async def test_a_resumed_session_knows_what_was_found(tmp_path: Path) -> None:
    search = ToolSearch()
    builder = ToolRegistryBuilder()
    ManyTools(100).register(builder)
    search.offer(builder.defer())
    found = [hit.tool for hit in search.search("customer email dice")]
    search.close()
    assert {tool.key for tool in found} == {("crm", "find_customer"), (None, "roll_dice")}
    tools = tuple(msgspec.Raw(spec.responses_json) for spec in as_loaded_specs(found))
    item = make_item(ToolSearchOutput(call_id="s1", execution="client", tools=tools))
    async with Toolset.for_model("m", cwd=tmp_path, tools=[], sandbox="danger-full-access") as toolset:
        toolset.add_source(ManyTools(100))
        toolset.recall([item])
        assert set(chat_names(toolset)) == {"tool_search", "crm__find_customer", "roll_dice"}


def chat_names(toolset: Toolset) -> list[str]:
    return [tool["function"]["name"] for tool in toolset.specs("chat")]


async def test_somebody_elses_loop_searches_and_calls(tmp_path: Path) -> None:
    async def chat(toolset: Toolset, name: str, **arguments: JsonValue) -> str:
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        (answer,) = await toolset.run([call])
        return str(answer["content"])

    source = ManyTools()
    async with Toolset.for_model("m", cwd=tmp_path, tools=[], sandbox="danger-full-access") as toolset:
        toolset.add_source(source)
        assert chat_names(toolset) == ["tool_search"]
        found = json.loads(await chat(toolset, "tool_search", query="deduplicate", limit=3))
        assert found == [{"name": "crm__merge", "description": "Joins two records."}]
        assert chat_names(toolset) == ["tool_search", "crm__merge"]
        assert await chat(toolset, "crm__merge") == "called merge"
        assert [tool["type"] for tool in toolset.specs()] == ["tool_search"]
        call = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "dice"}}
        (answer,) = await toolset.run([call])
        assert answer["type"] == "tool_search_output" and answer["tools"][0]["name"] == "roll_dice"


async def test_search_tool_bm25(tmp_path: Path) -> None:
    async def call(**arguments: JsonValue) -> str:
        item = {"type": "function_call", "call_id": "c", "name": "search_tool_bm25", "arguments": json.dumps(arguments)}
        (answer,) = await toolset.run([item])
        return str(answer["output"])

    tools = ["search_tool_bm25"]
    async with Toolset.for_model("m", cwd=tmp_path, tools=tools, sandbox="danger-full-access") as toolset:
        toolset.add_source(ManyTools())
        assert chat_names(toolset) == tools, "one search is enough"
        found = json.loads(await call(query=" find customer ", limit=1))
        assert (found["query"], found["total_tools"]) == ("find customer", 2000)
        assert found["active_selected_tools"] == ["crm__find_customer"]
        (tool,) = found["tools"]
        assert tool.pop("score") > 0
        assert tool == {
            "name": "crm__find_customer",
            "server": "crm",
            "title": None,
            "description": "Looks a customer up.",
            "connector_id": None,
            "connector_name": None,
            "input_keys": ["email"],
        }
        assert chat_names(toolset) == ["search_tool_bm25", "crm__find_customer"]
        assert await call(query="  ") == "query must not be empty"
        assert await call(query="x", limit=0) == "limit must be greater than zero"
        again = json.loads(await call(query="calendar", limit=2))
        assert {tool["server"] for tool in again["tools"]} == {"calendar"}
        assert again["active_selected_tools"][0] == "crm__find_customer" and len(again["active_selected_tools"]) == 3


async def test_tools_that_went_are_not_shown_any_more(tmp_path: Path) -> None:
    source = ManyTools(100)
    async with Toolset.for_model("m", cwd=tmp_path, tools=[], sandbox="danger-full-access") as toolset:
        toolset.add_source(source)
        toolset.current()
        toolset.conversation.shared.get(ToolSearch).search("shop branch")
        assert len(chat_names(toolset)) == 1 + 8
        source.count, source.revision = 50, 1
        assert 1 <= len(chat_names(toolset)) < 1 + 8
