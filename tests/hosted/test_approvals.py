"""Calls that the client allows one by one: asked in one response, answered in the next."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.hosted.approvals import LIFE_S, Approvals, Wanted
from ferrule.hosted.mcp.declared import read_server
from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.responses.history import ResponseCache
from ferrule.responses.ledger import Ledger
from ferrule.store import Conversation, Store
from ferrule.testing import ScriptedModel, function_call
from tests.hosted.remote import SERVER, Remote, items_of, remote, served_mcp
from tests.responses.serving import WEATHER, Json, Served, asked, check_stream, events_of

pytest.importorskip("mcp")
ASKS = {name: value for name, value in SERVER.items() if name != "require_approval"}
TOOLS = [ASKS, WEATHER]


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
    running.asked, running.replies = [], {}
    return running


@pytest.fixture(params=["chat", "responses"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire, server: Remote) -> AsyncIterator[Served]:
    async with served_mcp(tmp_path, model, server.hosts, wire) as here:
        yield here


def echo(text: str = "hi") -> Json:
    return function_call("mcp__docs__echo", {"text": text})


def drop() -> Json:
    return function_call("mcp__docs__drop", {})


def answer(request: Json, approve: bool = True, **more: object) -> Json:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, **more}


async def asks(here: Served, *calls: Json, **body: Any) -> tuple[Ledger, list[Json]]:
    """A response that ends with requests for approval."""
    here.model.add(list(calls or (echo(),)))
    ledger = await here.ask(**{"tools": TOOLS, **body})
    assert ledger.object["status"] == "completed", ledger.object
    return ledger, items_of(ledger.object, "mcp_approval_request")


async def refused(here: Served, status: int, **body: Any) -> ApiError:
    before = len(here.model.requests)
    with pytest.raises(ApiError) as raised:
        await here.ask(tools=TOOLS, **body)
    assert (raised.value.status, len(here.model.requests)) == (status, before), raised.value
    return raised.value


async def test_a_call_that_is_allowed_runs_before_the_model_is_asked(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    assert request == {
        "id": request["id"], "type": "mcp_approval_request", "status": "completed", "server_label": "docs",
        "name": "echo", "arguments": '{"text":"hi"}',
    }  # fmt: skip
    assert server.methods == ["tools/list"]
    here.model.add("Done.")
    ledger = await here.engine.open(asked(tools=TOOLS, input=[answer(request)], previous_response_id=first.id))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    call, said = ledger.object["output"]
    assert (call["type"], call["approval_request_id"], call["output"]) == ("mcp_call", request["id"], "ECHO hi")
    assert said["type"] == "message"
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi"]
    assert len(here.model.requests) == 2
    here.model.add("On.")
    await here.ask(input="go on", tools=TOOLS, previous_response_id=ledger.id)
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi"]


async def test_a_call_that_is_denied_does_not_run(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    here.model.add("Then not.")
    no = answer(request, False, reason="too risky")
    ledger = await here.ask(input=[no], tools=TOOLS, previous_response_id=first.id)
    assert [item["type"] for item in ledger.object["output"]] == ["message"]
    (output,) = here.model.last_request.outputs
    assert "denied" in output.text and "too risky" in output.text
    assert server.methods == ["tools/list"]


async def test_a_conversation_goes_on_without_an_answer(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    here.model.add("Fine.", "Fine.")
    second = await here.ask(input="never mind", tools=TOOLS, previous_response_id=first.id)
    (output,) = here.model.last_request.outputs
    assert "not run" in output.text and server.methods == ["tools/list"]
    error = await refused(here, 400, input=[answer(request)], previous_response_id=second.id)
    assert (error.code, error.param) == ("approval_used", "input[0].approval_request_id")
    third = await here.ask(input="and now", previous_response_id=second.id)
    assert [one.text for one in here.model.last_request.outputs] == [output.text]
    assert third.object["status"] == "completed"


async def test_an_answer_counts_once(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    here.model.add("Done.")
    second = await here.ask(input=[answer(request)], tools=TOOLS, previous_response_id=first.id)
    for parent in (first.id, second.id):
        error = await refused(here, 400, input=[answer(request)], previous_response_id=parent)
        assert error.code == "approval_used"
    await refused(here, 400, input=[answer(request, False)], previous_response_id=first.id)
    assert server.methods.count("tools/call") == 1


async def test_two_answers_at_once_run_the_call_once(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    here.model.add("Done.", "Done.")
    both = [here.ask(input=[answer(request)], tools=TOOLS, previous_response_id=first.id) for _ in range(2)]
    done = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["ApiError", "Ledger"]
    assert server.methods.count("tools/call") == 1
    await refused(here, 400, input=[answer(request), answer(request)], previous_response_id=first.id)


async def test_a_request_that_was_not_made_here_does_not_exist(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here, owner="me")
    other, (foreign,) = await asks(here, owner="me")
    forged = request | {"id": request["id"][:-1] + ("0" if request["id"][-1] != "0" else "1")}
    for body, owner in (
        ({"input": [answer(request)], "previous_response_id": other.id}, "me"),
        ({"input": [answer(request)]}, "me"),
        ({"input": [answer({"id": "mcpr_none"})], "previous_response_id": first.id}, "me"),
        ({"input": [request, answer(request)], "previous_response_id": other.id}, "me"),
        ({"input": [forged, answer(forged)]}, "me"),
        ({"input": [request | {"arguments": '{"text":"other"}'}, answer(request)]}, "me"),
        ({"input": [request | {"name": "drop"}, answer(request)]}, "me"),
        ({"input": [request | {"server_label": "docs2"}, answer(request)]}, "me"),
        ({"input": [request, answer(request)]}, "you"),
        ({"input": [request, answer(request)]}, ""),
    ):
        error = await refused(here, 404, owner=owner, **body)
        assert error.param is not None and error.param.endswith("approval_request_id")
    with pytest.raises(ApiError) as raised:
        await here.ask(input=[{"type": "ferrule_held", "call": "c", "function": "f", "request": request}])
    assert raised.value.status == 400
    here.model.add("Done.")
    await here.ask(owner="me", input=[answer(foreign)], tools=TOOLS, previous_response_id=other.id)
    assert server.methods.count("tools/call") == 1


async def test_a_client_without_storage_sends_the_request_back(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here, store=False)
    asked_ = [{"role": "user", "content": "hi"}, *first.object["output"]]
    here.model.add("Done.", "On.")
    replay = [*asked_, answer(request)]
    second = await here.ask(input=replay, tools=TOOLS, store=False)
    assert [item["type"] for item in second.object["output"]] == ["mcp_call", "message"]
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi"]
    replay += [*second.object["output"], {"role": "user", "content": "and"}]
    await here.ask(input=replay, tools=TOOLS, store=False)
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi"]
    assert server.methods == ["tools/list", "tools/call"]
    await refused(here, 400, input=[*asked_, answer(request)], store=False)
    denied, (again,) = await asks(here, store=False)
    replay = [{"role": "user", "content": "hi"}, *denied.object["output"], answer(again, False)]
    here.model.add("No.", "Yes.")
    last = await here.ask(input=replay, tools=TOOLS, store=False)
    await here.ask(input=[*replay, *last.object["output"], {"role": "user", "content": "so"}], tools=TOOLS, store=False)
    assert "denied" in here.model.last_request.outputs[0].text


async def test_a_conversation_and_a_connection_know_their_requests(here: Served, server: Remote) -> None:
    await here.store.create_conversation(Conversation(id="conv_1", owner="", created_at=1))
    _, (request,) = await asks(here, conversation="conv_1")
    here.model.add("Done.")
    await here.ask(input=[answer(request)], tools=TOOLS, conversation="conv_1")
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi"]
    cache = ResponseCache()
    first, (request,) = await asks(here, store=False, cache=cache)
    here.model.add("Done.")
    more: Json = {"input": [answer(request)], "store": False, "previous_response_id": first.id}
    await here.ask(cache=cache, tools=TOOLS, **more)
    assert server.methods.count("tools/call") == 2
    await refused(here, 404, **more)


async def test_several_requests_and_calls_of_the_client(here: Served, server: Remote) -> None:
    free = SERVER | {"require_approval": {"never": {"read_only": True}}}
    here.model.add([echo("free"), drop(), function_call("get_weather", {"city": "Rome"})])
    first = await here.ask(tools=[free, WEATHER])
    kinds = [item["type"] for item in first.object["output"]]
    assert sorted(kinds) == ["function_call", "mcp_approval_request", "mcp_call", "mcp_list_tools"]
    (request,) = items_of(first.object, "mcp_approval_request")
    (call,) = items_of(first.object, "function_call")
    here.model.add("Done.")
    given = [{"role": "user", "content": "also"}, answer(request)]
    given.append({"type": "function_call_output", "call_id": call["call_id"], "output": "sun"})
    await here.ask(input=given, tools=[free, WEATHER], previous_response_id=first.id)
    assert sorted(output.text for output in here.model.last_request.outputs) == ["ECHO None", "ECHO free", "sun"]


@pytest.mark.parametrize(
    ("given", "asking"),
    [
        (None, ["echo", "drop"]),
        ("always", ["echo", "drop"]),
        ("never", []),
        ({}, ["echo", "drop"]),
        ({"never": {}}, ["echo", "drop"]),
        ({"never": {"tool_names": ["drop"]}}, ["echo"]),
        ({"never": {"read_only": True}}, ["drop"]),
        ({"always": {"tool_names": ["echo"]}, "never": {"tool_names": ["echo", "drop"]}}, ["echo"]),
        ({"always": {"tool_names": ["echo"]}}, ["echo", "drop"]),
        ({"never": {"tool_names": ["drop"], "read_only": True}}, ["echo", "drop"]),
    ],
)
def test_which_calls_are_asked_for(given: object, asking: list[str]) -> None:
    server = read_server(ASKS if given is None else ASKS | {"require_approval": given})
    tools = {"echo": True, "drop": False}
    assert [name for name, reads in tools.items() if server.asks_for(name, read_only=reads)] == asking


async def test_an_allowed_call_needs_its_server(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    with pytest.raises(ApiError, match="'docs'") as raised:
        await here.ask(input=[answer(request)], tools=[WEATHER], previous_response_id=first.id)
    assert raised.value.status == 400
    here.model.add("Done.")
    await here.ask(input=[answer(request)], tools=TOOLS, previous_response_id=first.id)
    assert server.methods == ["tools/list", "tools/call"]


async def test_after_a_restart_a_request_can_be_answered_once(
    tmp_path: Path, model: ScriptedModel, server: Remote
) -> None:
    async with served_mcp(tmp_path, model, server.hosts) as here:
        first, (request,) = await asks(here)
    model.add("Done.")
    async with served_mcp(tmp_path, model, server.hosts) as here:
        await here.ask(input=[answer(request)], tools=TOOLS, previous_response_id=first.id)
    async with served_mcp(tmp_path, model, server.hosts) as here:
        await refused(here, 400, input=[answer(request)], previous_response_id=first.id)
    assert server.methods == ["tools/list", "tools/call"]


async def test_an_answer_without_a_response_waits_for_one(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    kept = await here.ask(input=[answer(request)], tools=TOOLS, previous_response_id=first.id, generate=False)
    assert server.methods == ["tools/list"]
    here.model.add("Done.")
    await here.ask(input="now", tools=TOOLS, previous_response_id=kept.id)
    assert [output.text for output in here.model.last_request.outputs] == ["ECHO hi"]


async def test_a_call_whose_run_broke_off_is_not_repeated(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def never(asked: object) -> Any:
        loop.call_soon_threadsafe(gone.set)
        return 0, {}, b""

    server.replies["tools/call"] = never
    body = {"input": [answer(request)], "tools": TOOLS, "previous_response_id": first.id}
    ledger = await here.engine.open(asked(**body, background=True))
    await gone.wait()
    await here.engine.cancel(ledger.id)
    here.model.add("On.")
    server.replies.clear()
    await here.ask(input="go on", tools=TOOLS, previous_response_id=ledger.id)
    (output,) = here.model.last_request.outputs
    assert "not known" in output.text or "failed" in output.text
    assert server.methods.count("tools/call") == 1


async def test_a_summary_knows_the_call_that_was_allowed(here: Served, server: Remote) -> None:
    first, (request,) = await asks(here)
    here.model.add("A summary.", "Done.")
    management = [{"type": "compaction", "compact_threshold": 1}]
    second = await here.ask(
        input=[answer(request)], tools=TOOLS, previous_response_id=first.id, context_management=management
    )
    kinds = [item["type"] for item in second.object["output"]]
    assert kinds == ["mcp_call", "compaction", "message"]
    assert [output.text for output in here.model.requests[1].outputs] == ["ECHO hi"]
    here.model.add([echo("more")], "A summary.")
    third = await here.ask(input="on", tools=TOOLS, previous_response_id=second.id)
    await here.engine.compact(asked(previous_response_id=third.id, tools=TOOLS))
    assert "ferrule_" not in str([request.body for request in here.model.requests])
    assert "not run" in here.model.last_request.outputs[-1].text
    assert server.methods == ["tools/list", "tools/call"]


async def test_a_request_is_good_for_some_time(tmp_path: Path) -> None:
    now = 1_000_000.0
    async with await Store.open(tmp_path / "s.db") as store:
        approvals = Approvals(store, clock=lambda: now)
        wanted = Wanted(owner="", server="s", tool="t", arguments="{}")
        request = await approvals.new_id(wanted)
        assert len(request) <= 64 and await approvals.is_ours(request, wanted)
        assert await approvals.use("", [request], {request}) == frozenset()
        assert await approvals.use("", [request, "other"], {request}) == {request}
        assert await approvals.use("", ["other"], set()) == frozenset()
        now += LIFE_S + 1
        assert not await approvals.is_ours(request, wanted)
        assert await store.expire_approvals(int(now)) == 2
