"""Dynamic tools: registered by a client, called by a model, answered by the client."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.dynamic_tools import DynamicToolResponse, DynamicToolSpec
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import DynamicToolCallRequest, ExecApproval
from ferrule.protocol.permissions import ReviewDecision
from ferrule.session.session import Session
from ferrule.testing import ScriptedModel, function_call, message
from ferrule.tools.dynamic import dynamic_tool_to_openai_tool

WIRES = ("responses", "chat")
PIXEL = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
TICKET = DynamicToolSpec("lookup_ticket", "Look up a ticket", SCHEMA)

Answer = Callable[[Session, DynamicToolCallRequest], None]


async def run(wire: Any, cwd: Path, answer: Answer, *, calls: int = 1, arguments: Any = None, **more: Any) -> Any:
    """Outputs that the model read for `calls` parallel calls of the tool, and the events."""
    arguments = {"id": 7} if arguments is None else arguments
    script = [[function_call("lookup_ticket", arguments) for _ in range(calls)], [message("done")]]
    events: list[Any] = []
    session: Session | None = None

    def on_event(event: Any) -> None:
        events.append(event)
        if isinstance(event, DynamicToolCallRequest):
            assert session is not None
            answer(session, event)

    with ScriptedModel(script) as model:
        agent = Agent("gpt-5.5", tools=[TICKET], base_url=model.base_url, wire=wire, cwd=cwd, on_event=on_event, **more)
        async with await agent.open() as session:
            await session.run("go")
        return model.requests[1].outputs, events, model.requests


@pytest.mark.parametrize("wire", WIRES)
async def test_a_call_is_an_event_and_its_answer_reaches_the_model(wire: str, tmp_path: Path) -> None:
    def answer(session: Session, request: DynamicToolCallRequest) -> None:
        assert (request.tool, request.arguments) == ("lookup_ticket", {"id": 7})
        assert request.turn_id
        response = DynamicToolResponse((InputText("ticket 7 is open"), InputImage(image_url=PIXEL)))
        session.answer_dynamic_tool(request.call_id, response)

    _, _, requests = await run(wire, tmp_path, answer)
    sent = requests[1].raw.decode()
    assert "ticket 7 is open" in sent
    assert PIXEL in sent
    assert requests[0].tool_names == ["lookup_ticket"]


@pytest.mark.parametrize("wire", WIRES)
async def test_one_text_is_plain_text_and_failure_is_in_the_output(wire: str, tmp_path: Path) -> None:
    def answer(session: Session, request: DynamicToolCallRequest) -> None:
        session.answer_dynamic_tool(request.call_id, DynamicToolResponse((InputText("no such ticket"),), success=False))

    outputs, events, _ = await run(wire, tmp_path, answer)
    assert outputs[0].text == "no such ticket"
    done = next(event for event in events if getattr(event, "output", None) is not None)
    assert done.output.success is False


async def test_calls_run_one_after_the_other(tmp_path: Path) -> None:
    running = 0

    def answer(session: Session, request: DynamicToolCallRequest) -> None:
        nonlocal running
        running += 1
        assert running == 1

        async def later() -> None:
            nonlocal running
            await asyncio.sleep(0.02)
            running -= 1
            session.answer_dynamic_tool(request.call_id, DynamicToolResponse((InputText("ok"),)))

        tasks.append(asyncio.ensure_future(later()))

    tasks: list[Any] = []
    outputs, _, _ = await run("responses", tmp_path, answer, calls=3)
    assert [output.text for output in outputs] == ["ok"] * 3


async def test_wrong_arguments_never_reach_the_client(tmp_path: Path) -> None:
    def answer(session: Session, request: DynamicToolCallRequest) -> None:
        raise AssertionError("the client was asked")

    outputs, _, _ = await run("responses", tmp_path, answer, arguments={"id": "seven"})
    assert "id" in outputs[0].text
    assert "integer" in outputs[0].text


async def test_a_client_that_does_not_answer_in_time(tmp_path: Path) -> None:
    script = [[function_call("slow_tool", {})], [message("done")]]
    with ScriptedModel(script) as model:
        agent = Agent("m", tools=[], base_url=model.base_url, cwd=tmp_path, on_event=lambda event: None)
        async with await agent.open() as session:
            session.add_dynamic_tools([DynamicToolSpec("slow_tool", "", {"type": "object"})], timeout=0.05)
            await session.run("go")
            assert "nobody answered within 0.05 seconds" in model.requests[1].outputs[0].text
            with pytest.raises(UsageError, match="no question"):
                session.answer_dynamic_tool("call_1", DynamicToolResponse(()))


async def test_an_interrupted_call_is_withdrawn(tmp_path: Path) -> None:
    asked = asyncio.Event()
    script = [[function_call("slow_tool", {}, call_id="c1")]]

    def on_event(event: Any) -> None:
        if isinstance(event, DynamicToolCallRequest):
            asked.set()

    with ScriptedModel(script) as model:
        agent = Agent("m", tools=[], base_url=model.base_url, cwd=tmp_path, on_event=on_event)
        async with await agent.open() as session:
            session.add_dynamic_tools([DynamicToolSpec("slow_tool", "", {"type": "object"})])
            turn = asyncio.ensure_future(session.run("go"))
            await asyncio.wait_for(asked.wait(), 10)
            session.interrupt()
            assert (await turn).aborted
            with pytest.raises(UsageError, match="its turn ended"):
                session.answer_dynamic_tool("c1", DynamicToolResponse(()))


async def test_tools_come_and_go_between_requests_and_a_callback_answers(tmp_path: Path) -> None:
    script = [[message("one")], [function_call("late", {"x": 1})], [message("two")], [message("three")]]

    async def callback(request: DynamicToolCallRequest) -> DynamicToolResponse:
        return DynamicToolResponse((InputText(f"got {request.arguments}"),))

    with ScriptedModel(script) as model:
        agent = Agent("m", tools=["update_plan"], base_url=model.base_url, cwd=tmp_path)
        async with await agent.open() as session:
            await session.run("first")
            session.add_dynamic_tools([DynamicToolSpec("late", "Late", {"type": "object"})], callback)
            await session.run("second")
            session.toolset.remove_dynamic_tools(["late"])
            await session.run("third")
        assert [request.tool_names for request in model.requests] == [
            ["update_plan"],
            ["update_plan", "late"],
            ["update_plan", "late"],
            ["update_plan"],
        ]
        assert model.requests[2].outputs[0].text == "got {'x': 1}"


async def test_names_that_are_taken_or_impossible_are_refused(tmp_path: Path) -> None:
    with ScriptedModel([]) as model:
        agent = Agent("m", tools=["update_plan"], base_url=model.base_url, cwd=tmp_path)
        async with await agent.open() as session:
            for name, why in (("update_plan", "there already"), ("a b", "cannot be named"), ("x" * 65, "cannot be")):
                with pytest.raises(UsageError, match=why):
                    session.add_dynamic_tools([DynamicToolSpec(name, "", {})])
            session.add_dynamic_tools([DynamicToolSpec("mine", "", {}), DynamicToolSpec("other", "", {})])
            registry = session.toolset.dispatcher("t").registry
            assert registry.handler("mine") is registry.handler("other") is not None
            with pytest.raises(UsageError, match="there already"):
                session.add_dynamic_tools([DynamicToolSpec("mine", "", {})])


@pytest.mark.parametrize(("policy", "asked"), [("untrusted", 1), ("on-request", 0), ("never", 0)])
async def test_registering_is_consent_except_under_untrusted(policy: str, asked: int, tmp_path: Path) -> None:
    questions: list[ExecApproval] = []

    def answer(session: Session, request: DynamicToolCallRequest) -> None:
        session.answer_dynamic_tool(request.call_id, DynamicToolResponse((InputText("ok"),)))

    def approve(question: ExecApproval) -> ReviewDecision:
        questions.append(question)
        return ReviewDecision.APPROVED

    outputs, _, _ = await run("chat", tmp_path, answer, approval_policy=policy, on_approval=approve)
    assert outputs[0].text == "ok"
    assert len(questions) == asked


def test_the_spec_is_sanitised_and_not_strict() -> None:
    spec = DynamicToolSpec("t", "T", {"properties": {"a": {"enum": ["x"]}}})
    wire = dynamic_tool_to_openai_tool(spec).to_responses()
    assert (wire["name"], wire["description"], wire["strict"]) == ("t", "T", False)
    assert wire["parameters"]["type"] == "object"
    assert wire["parameters"]["properties"]["a"]["type"] == "string"


async def test_b106_names_of_properties_are_given_back_as_the_client_knows_them(tmp_path: Path) -> None:
    script = [[function_call("odd", {"a_b": 1})], [message("done")]]
    schema = {"type": "object", "properties": {"a b": {"type": "integer"}}}
    with ScriptedModel(script) as model:
        agent = Agent("m", tools=[], base_url=model.base_url, wire="chat", cwd=tmp_path)
        async with await agent.open() as session:
            session.add_dynamic_tools(
                [DynamicToolSpec("odd", "", schema)],
                lambda request: DynamicToolResponse((InputText(str(request.arguments)),)),
            )
            await session.run("go")
        assert model.requests[1].outputs[0].text == "{'a b': 1}"
