"""Spans and metrics, as a real SDK collects them from real sessions."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, StatusCode

from ferrule import Agent, tool
from ferrule.dispatch.front_end import Callbacks
from ferrule.model.stream import Created, ModelError, ModelRequest, ResponseEvent
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess, ReviewDecision
from ferrule.protocol.settings import AgentRole, Features, ModelSettings, Otel, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session import telemetry
from ferrule.session.budget import BudgetSpent
from ferrule.session.opening import open_session
from ferrule.session.session import Session
from ferrule.testing import ScriptedModel, Usage, function_call, raw, step
from tests.session.collected import Collected, collecting
from tests.session.models import InProcessModel, says

WIRES: list[Wire] = ["responses", "chat", "messages"]


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    yield from collecting(monkeypatch)


@tool(read_only=True)
async def look(what: str = "") -> str:
    """Look."""
    return f"seen {what}"


@tool(read_only=True)
def look_inside() -> str:
    """Open a span of the program's own, on a thread."""
    with trace.get_tracer("program").start_as_current_span("inside"):
        return "seen"


@tool(read_only=True)
async def crash() -> str:
    """Crash."""
    raise ZeroDivisionError("the secret is 42")


@tool(read_only=True)
async def sleep() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


async def opened(folder: Path, url: str, *, wire: Wire = "responses", **fields: Any) -> Session:
    tools, front_end = fields.pop("tools", [look, look_inside, crash, sleep]), fields.pop("front_end", None)
    settings = Settings(
        cwd=str(folder), home=str(folder / "home"), model=ModelSettings(model="m-1"), ephemeral=True,
        provider=ProviderSettings(name="server", base_url=url, wire_api=wire, request_max_retries=2,
                                  stream_max_retries=0, http_headers={"x-api-key": "sk-header-0123456789"}),
        sandbox_policy=DangerFullAccess(), approval_policy=fields.pop("approval", AskForApproval.NEVER), **fields,
    )  # fmt: skip
    return await open_session(settings, front_end, tools=tools)


def attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("wire", WIRES)
async def test_a_turn_is_a_tree_of_spans_by_the_conventions(collected: Collected, tmp_path: Path, wire: Wire) -> None:
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, reasoning_tokens=7)
    script: list[Any] = [
        step(function_call("look", {"what": "a"}), function_call("look_inside", {}), usage=usage),
        "done",
    ]
    with trace.get_tracer("program").start_as_current_span("mine"), ScriptedModel(script) as server:
        async with await opened(tmp_path, server.base_url, wire=wire) as session:
            result = await session.run("hello")
    assert collected.tree() == {
        ("mine", None),
        ("invoke_agent ferrule", "mine"),
        ("chat m-1", "invoke_agent ferrule"),
        ("execute_tool look", "invoke_agent ferrule"),
        ("execute_tool look_inside", "invoke_agent ferrule"),
        ("inside", "execute_tool look_inside"),
    }
    assert collected.all_ended()
    first, second = (span for span in collected.spans if span.name == "chat m-1")
    asked = attributes(first)
    assert first.kind is SpanKind.CLIENT and first.status.is_unset
    assert asked.pop("gen_ai.response.time_to_first_chunk") > 0
    assert asked.pop("gen_ai.response.id")
    assert asked.pop("server.port") == urlsplit(server.base_url).port
    assert asked == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "server", "gen_ai.request.model": "m-1",
        "gen_ai.response.model": "m-1", "gen_ai.request.stream": True, "gen_ai.conversation.id": session.id,
        "server.address": "127.0.0.1", "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 7,
    }  # fmt: skip
    assert attributes(second)["gen_ai.response.finish_reasons"] == ("stop",)
    call = attributes(collected.span("execute_tool look"))
    assert call.pop("gen_ai.tool.call.id").startswith("call_")
    assert call == {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "ferrule", "gen_ai.conversation.id": session.id,
    }  # fmt: skip
    turn = attributes(collected.span("invoke_agent ferrule"))
    assert (turn["gen_ai.operation.name"], turn["gen_ai.conversation.id"]) == ("invoke_agent", session.id)
    assert turn["gen_ai.usage.input_tokens"] == result.usage.input_tokens > 100


async def test_metrics_have_the_conventions_names_units_and_buckets(collected: Collected, tmp_path: Path) -> None:
    usage = Usage(input_tokens=100, output_tokens=20)
    with ScriptedModel([step(function_call("look", {}), usage=usage), "done"]) as server:
        async with await opened(tmp_path, server.base_url) as session:
            await session.run("hello")
    tokens = {point.attributes["gen_ai.token.type"]: point for point in collected.points("gen_ai.client.token.usage")}
    assert tokens["input"].min <= 100 <= tokens["input"].max and tokens["input"].count == 2
    assert list(tokens["output"].explicit_bounds) == [4**power for power in range(14)]
    [asked] = collected.points("gen_ai.client.operation.duration")
    assert asked.count == 2 and asked.explicit_bounds[:3] == (0.01, 0.02, 0.04) and asked.explicit_bounds[-1] == 81.92
    labels = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model",
              "server.address", "server.port"}  # fmt: skip
    assert set(asked.attributes) == labels
    [first] = collected.points("gen_ai.client.operation.time_to_first_chunk")
    assert first.count == 2 and 0 < first.min <= asked.max
    [turn] = collected.points("gen_ai.invoke_agent.duration")
    assert dict(turn.attributes) == {"gen_ai.agent.name": "ferrule", "gen_ai.request.model": "m-1"}
    [call] = collected.points("gen_ai.execute_tool.duration")
    assert call.attributes["gen_ai.tool.name"] == "look"


async def test_nothing_that_was_said_is_told_unless_asked_for(collected: Collected, tmp_path: Path) -> None:
    with ScriptedModel([[function_call("look", {"what": "MARK"})], [function_call("crash", {})], "MARK"]) as server:
        async with await opened(tmp_path, server.base_url, instructions="MARK") as session:
            await session.run("MARK")
    told = "".join(span.to_json() for span in collected.spans)
    assert "MARK" not in told and "42" not in str(collected.span("execute_tool crash").status.description)


async def test_contents_are_told_where_asked_for_without_secrets(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_DEPLOY_TOKEN", "tok-in-the-environment")
    secret = "tok-in-the-environment and sk-header-0123456789"
    with ScriptedModel([[function_call("look", {"what": f"MARK {secret}"})], f"said {secret}"]) as server:
        async with await opened(tmp_path, server.base_url, otel=Otel(contents=True), instructions="BASE") as session:
            await session.run(f"hello {secret}")
    told = "".join(span.to_json() for span in collected.spans)
    assert "tok-in-the" not in told and "sk-header" not in told
    asked = attributes([span for span in collected.spans if span.name == "chat m-1"][1])
    assert "BASE" in json.loads(asked["gen_ai.system_instructions"])[0]["content"]
    said = json.loads(asked["gen_ai.input.messages"])
    assert [part["type"] for entry in said for part in entry["parts"]][-3:] == [
        "text", "tool_call", "tool_call_response",
    ]  # fmt: skip
    assert said[-3] == {"role": "user", "parts": [{"type": "text", "content": "hello ***** and *****"}]}
    assert json.loads(asked["gen_ai.output.messages"])[0]["parts"][0]["content"] == "said ***** and *****"
    call = attributes(collected.span("execute_tool look"))
    assert call["gen_ai.tool.call.arguments"] == '{"what":"MARK ***** and *****"}'
    assert call["gen_ai.tool.call.result"] == "seen MARK ***** and *****"


async def test_a_secret_is_hidden_however_it_is_written(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call's arguments are JSON; a password stands in a URL as it is escaped there."""
    lines, meant = 'first "line"\nsecond-LINE', "p@ss/w\u00f6rd-PLAIN"
    monkeypatch.setenv("SIGNING_KEY", lines)
    monkeypatch.setenv("STRANGE_KEY", os.fsdecode(b"caf\xe9-caf\xe9"))
    monkeypatch.setenv("DATABASE_URL", f"postgres://me:{quote(meant, safe='')}@db/x")
    monkeypatch.setenv("NO_URL", "http://[half")
    arguments = {"what": f"{lines} {meant}"}
    script = [function_call("look", arguments), function_call("look", json.dumps(arguments))]
    with ScriptedModel([script, "done"]) as server:
        async with await opened(tmp_path, server.base_url, otel=Otel(contents=True)) as session:
            await session.run(f"{lines} {meant} {os.environ['DATABASE_URL']}")
    told = "".join(span.to_json() for span in collected.spans)
    assert "*****" in told and "LINE" not in told and "PLAIN" not in told


class _OldMeter(metrics.NoOpMeter):
    """As before OpenTelemetry 1.30."""

    def create_histogram(self, name: str, unit: str = "", description: str = "") -> Any:  # type: ignore[override]
        return metrics.NoOpHistogram(name, unit, description)


class _OldProvider(metrics.NoOpMeterProvider):
    def get_meter(self, name: str, *parts: Any, **more: Any) -> Any:
        return _OldMeter(name)


async def test_a_program_may_bring_an_older_version(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the version, which cannot be installed beside the other."""
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", _OldProvider())
    with ScriptedModel(["done"]) as server:
        async with await opened(tmp_path, server.base_url) as session:
            await session.run("hello")
    assert collected.names == ["invoke_agent ferrule", "chat m-1"]


@pytest.mark.parametrize("when", ["on_start", "on_end"])
async def test_a_broken_processor_of_the_program_fails_no_turn(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    def broken(*given: Any, **named: Any) -> None:
        raise RuntimeError("a full disk")

    monkeypatch.setattr(type(collected.processor), when, broken)
    with ScriptedModel([[function_call("look", {}), function_call("crash", {})], "done"]) as server:
        async with await opened(tmp_path, server.base_url) as session:
            assert (await session.run("hello")).text == "done"
    assert "a full disk" in caplog.text


async def test_where_only_spans_are_collected_no_session_leaves_a_meter_behind(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = metrics._internal._ProxyMeterProvider()
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics._internal, "_PROXY_METER_PROVIDER", nobody)
    for _ in range(2):
        async with await opened(tmp_path, "http://127.0.0.1:1/v1") as session:
            assert session._dialogue.spans is not None
    assert len(nobody._meters) == 1


async def test_failures_have_a_kind_and_every_span_ends(collected: Collected, tmp_path: Path) -> None:
    script: list[Any] = [[function_call("crash", {}), function_call("nothing_like_it", {})], raw(b"{}", status=403)]
    with ScriptedModel(script) as server:
        async with await opened(tmp_path, server.base_url) as session:
            with pytest.raises(ModelError):
                await session.run("hello")
    kinds = {span.name: attributes(span).get("error.type") for span in collected.spans}
    assert kinds == {
        "invoke_agent ferrule": "403", "chat m-1": "403", "execute_tool crash": "ZeroDivisionError",
        "execute_tool _OTHER": "UnknownTool",
    }  # fmt: skip
    assert all(span.status.status_code is StatusCode.ERROR for span in collected.spans if span.name != "chat m-1")
    assert collected.all_ended()
    failed = [point.attributes.get("error.type") for point in collected.points("gen_ai.client.operation.duration")]
    assert sorted(map(str, failed)) == ["403", "None"]


async def test_a_request_is_one_span_with_its_retries(collected: Collected, tmp_path: Path) -> None:
    busy = raw(b'{"error": {"message": "busy"}}', status=503, headers={"retry-after-ms": "1"})
    with ScriptedModel([busy, busy, "done"]) as server:
        async with await opened(tmp_path, server.base_url) as session:
            await session.run("hello")
    asked = collected.span("chat m-1")
    assert [event.name for event in asked.events] == ["ferrule.retry", "ferrule.retry"]
    assert asked.status.is_unset and len(server.requests) == 3


@pytest.mark.parametrize("how", ["interrupt", "cancel", "close"])
async def test_an_interrupted_turn_ends_its_spans(collected: Collected, tmp_path: Path, how: str) -> None:
    with ScriptedModel([[function_call("sleep", {}), function_call("look", {})]]) as server:
        async with await opened(tmp_path, server.base_url) as session:
            running = asyncio.create_task(session.run("hello"))
            while "execute_tool look" not in collected.names or len(collected.started) < 4:  # noqa: ASYNC110 - of the SDK
                await asyncio.sleep(0.001)
            if how == "interrupt":
                session.interrupt()
                assert (await running).aborted
            elif how == "cancel":
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            else:
                await session.aclose()
                await asyncio.wait([running])
    assert collected.all_ended()
    kinds = {span.name: attributes(span).get("error.type") for span in collected.spans}
    assert kinds == {
        "invoke_agent ferrule": "cancelled", "chat m-1": None, "execute_tool look": None,
        "execute_tool sleep": "cancelled",
    }  # fmt: skip


async def test_a_request_that_is_interrupted_ends_its_span(collected: Collected, tmp_path: Path) -> None:
    began = asyncio.Event()

    async def endless(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        yield Created("r")
        began.set()
        await asyncio.Event().wait()

    async with await Agent(InProcessModel(endless), tools=[], cwd=tmp_path).open() as session:
        running = asyncio.create_task(session.run("hello"))
        await began.wait()
        session.interrupt()
        await running
    assert {span.name: attributes(span)["error.type"] for span in collected.spans} == {
        "invoke_agent ferrule": "cancelled", "chat": "cancelled",
    }  # fmt: skip
    assert collected.all_ended()


async def test_a_budget_that_is_spent_ends_the_turn_under_its_name(collected: Collected, tmp_path: Path) -> None:
    with ScriptedModel([[function_call("look", {})], "never asked"]) as server:
        async with await opened(tmp_path, server.base_url, run_token_budget=1) as session:
            with pytest.raises(BudgetSpent):
                await session.run("hello")
    assert attributes(collected.span("invoke_agent ferrule"))["error.type"] == "BudgetSpent"
    assert collected.all_ended() and collected.names.count("chat m-1") == 1


async def test_a_compaction_is_a_request_of_its_own(collected: Collected, tmp_path: Path) -> None:
    with ScriptedModel(["first", "a summary"]) as server:
        async with await opened(tmp_path, server.base_url) as session:
            await session.run("hello")
            await session.compact()
    assert ("chat m-1", None) in collected.tree() and collected.all_ended()


async def test_the_wait_for_the_user_and_the_command_lie_beneath_the_call(collected: Collected, tmp_path: Path) -> None:
    def approve(question: ExecApproval) -> ReviewDecision:
        return ReviewDecision.APPROVED

    script: list[Any] = [[function_call("shell", {"command": ["sh", "-c", "exit 3"]})], "done"]
    with ScriptedModel(script) as server:
        async with await opened(tmp_path, server.base_url, tools=["shell"], approval=AskForApproval.UNTRUSTED,
                                front_end=Callbacks(None, approve)) as session:  # fmt: skip
            await session.run("hello")
    assert {("ask_user command", "execute_tool shell"), ("run_command", "execute_tool shell")} <= collected.tree()
    asked, ran = collected.span("ask_user command"), collected.span("run_command")
    assert attributes(asked)["ferrule.question.decision"] == "approved"
    assert (attributes(ran)["process.exit.code"], attributes(ran)["ferrule.sandboxed"]) == (3, False)
    assert (asked.end_time or 0) <= (ran.start_time or 0)
    assert "process.command_args" not in attributes(ran)


async def test_what_a_cell_calls_lies_beneath_its_call(collected: Collected, tmp_path: Path) -> None:
    cells = [[function_call("python", {"code": f"call_tool('look', {{'what': '{n}'}})"})] for n in "ab"]
    with ScriptedModel([*cells, "done"]) as server:
        async with await opened(tmp_path, server.base_url, tools=["python", look]) as session:
            await session.run("hello")
    ran, calls = ([one for one in collected.spans if one.name == name] for name in ("run_command", "execute_tool look"))
    assert [call.parent.span_id for call in calls if call.parent] == [one.context.span_id for one in ran]


async def test_a_child_lies_beneath_the_call_that_started_it(collected: Collected, tmp_path: Path) -> None:
    def wait_for_it(request: Any) -> list[Any]:
        [spawned] = [json.loads(output.text) for output in request.outputs]
        return [function_call("wait", {"ids": [spawned["agent_id"]]})]

    with ScriptedModel([[function_call("spawn_agent", {"message": "CHILD", "agent_type": "scout"})], wait_for_it,
                        "done"]) as server:  # fmt: skip
        server.play([function_call("look", {})], "seen", when="CHILD")
        async with await opened(tmp_path, server.base_url, features=Features(multi_agent=True),
                                agents={"scout": AgentRole()}) as session:  # fmt: skip
            await session.run("go")
    assert {
        ("invoke_agent scout", "execute_tool spawn_agent"),
        ("chat m-1", "invoke_agent scout"),
        ("execute_tool look", "invoke_agent scout"),
        ("execute_tool wait", "invoke_agent ferrule"),
    } <= collected.tree()
    assert collected.all_ended()
    child, parent = collected.span("invoke_agent scout"), collected.span("invoke_agent ferrule")
    assert attributes(child)["gen_ai.conversation.id"] != attributes(parent)["gen_ai.conversation.id"]
    assert child.context.trace_id == parent.context.trace_id


def test_plain_code_is_the_parent_too(collected: Collected, tmp_path: Path) -> None:
    with trace.get_tracer("program").start_as_current_span("mine"):
        Agent(InProcessModel([says("hi")]), tools=[], cwd=tmp_path).run_sync("hello")
    assert ("invoke_agent ferrule", "mine") in collected.tree()


@pytest.mark.parametrize("wire", WIRES)
async def test_the_traces_id_is_sent_only_where_asked_for(collected: Collected, tmp_path: Path, wire: Wire) -> None:
    with ScriptedModel(["one", "two"]) as server:
        for otel in (Otel(), Otel(propagate=True)):
            async with await opened(tmp_path, server.base_url, wire=wire, otel=otel) as session:
                await session.run("hello")
    without, with_it = ({name.lower(): value for name, value in request.headers.items()} for request in server.requests)
    assert "traceparent" not in without
    asked = [span for span in collected.spans if span.name == "chat m-1"][1]
    assert with_it["traceparent"].split("-")[1:3] == [f"{asked.context.trace_id:032x}", f"{asked.context.span_id:016x}"]


async def test_a_setting_turns_it_off(collected: Collected, tmp_path: Path) -> None:
    with ScriptedModel(["one"]) as server:
        async with await opened(tmp_path, server.base_url, otel=Otel(enabled=False)) as session:
            await session.run("hello")
    assert collected.names == []


async def test_without_an_sdk_nothing_is_wrapped_and_the_package_is_missed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not telemetry.is_set_up()
    async with await opened(tmp_path, "http://127.0.0.1:1/v1") as session:
        assert session._dialogue.spans is None
    monkeypatch.delitem(sys.modules, "ferrule.session.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UsageError, match=r"extra `otel`: pip install 'ferrule\[otel\]'"):
        await opened(tmp_path, "http://127.0.0.1:1/v1", otel=Otel(enabled=True))


def test_a_program_whose_api_is_being_imported_has_set_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another thread, by the SDK of an MCP server: the module is there, and still empty."""
    for name in ("opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert not telemetry.is_set_up()
