"""Sub-agents: a parent and its children over a real server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule.builtin.list_agents import ListAgentsAction, ListAgentsExecutor
from ferrule.builtin.spawn_agent import SpawnAgentAction, SpawnAgentExecutor
from ferrule.process.launcher import LaunchError
from ferrule.protocol.content import InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import ItemCompleted, ThreadStarted, TurnCompleted
from ferrule.protocol.settings import AgentRole
from ferrule.protocol.specs import Wire
from ferrule.session.rollout import find_rollout
from ferrule.session.toolset import Toolset
from ferrule.testing import ScriptedModel, function_call, step
from ferrule.tools.children import ChildStatus
from ferrule.tools.context import ToolContext
from ferrule.tools.events import ChildEvent
from tests.session.children import CHILD, WIRES, Gate, Stage, held_children, outputs, spawn, to, waiting


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("name", "key"), [("wait", "ids"), ("wait_agent", "targets")])
async def test_a_child_works_and_its_parent_reads_what_it_said(stage: Stage, wire: Wire, name: str, key: str) -> None:
    with ScriptedModel([[spawn()], waiting(name, key), "all done"]) as server:
        server.play("child's answer", when=CHILD)
        async with await stage.open(server.base_url, wire) as session:
            result = await session.run("go")
            assert result.text == "all done"
        spawned, waited = outputs(server)
        child = spawned["agent_id"]
        assert waited == {"status": {child: {"completed": "child's answer"}}, "timed_out": False}
        notices = [item for item in server.last_request.items if "<subagent_notification>" in json.dumps(item)]
        assert len(notices) == 1 and notices[0]["role"] == "user"
        assert child in json.dumps(notices) and "child's answer" in json.dumps(notices)
        [asked] = [request for request in server.requests if CHILD in request.user_text]
        assert "spawn_agent" not in asked.tool_names and "spawn_agent" in server.requests[0].tool_names
        assert result.usage == session.usage
        used = sum(event.event.usage.input_tokens for event in stage.events
                   if isinstance(event, ChildEvent) and isinstance(event.event, TurnCompleted))  # fmt: skip
        assert 0 < used < result.usage.input_tokens
        meta = stage.rollout(child).meta
        assert (meta.id, meta.parent_thread_id) == (child, session.id)
        assert find_rollout(str(stage.folder / "home"), None) == find_rollout(str(stage.folder / "home"), session.id)
        assert not server.failures


async def test_children_are_told_apart_in_the_events(stage: Stage) -> None:
    with ScriptedModel([[spawn()], waiting(), "done"]) as server:
        server.play("child's answer", when=CHILD)
        async with await stage.open(server.base_url) as session:
            await session.run("go")
    children = [event for event in stage.events if isinstance(event, ChildEvent)]
    [child] = {event.thread_id for event in children}
    assert {event.parent_thread_id for event in children} == {session.id} != {child}
    kinds = [type(event.event) for event in children]
    assert ThreadStarted in kinds and ItemCompleted in kinds and TurnCompleted in kinds


async def test_a_crashed_child_is_a_status(stage: Stage) -> None:
    with ScriptedModel([[spawn()], waiting(), "done"]) as server:
        server.play(step("x", end="missing"), when=CHILD)
        async with await stage.open(server.base_url) as session:
            await session.run("go")
        [status] = outputs(server)[1]["status"].values()
        assert list(status) == ["errored"] and status["errored"]
        assert '"errored"' in json.dumps(server.last_request.items[-1]).replace("\\", "")


async def test_input_reaches_a_child_while_it_works_and_after(stage: Stage) -> None:
    gate = Gate()
    second = to("send_input", items=[{"text": "SECOND"}])
    script = [[spawn()], to("send_input", message="FIRST"), "wait a moment", second, waiting(), "done"]
    with ScriptedModel(script) as server:
        server.play([function_call("hold", {})], "after the first", "after the second", when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            await session.run("go")
            [child] = session._dialogue.children._children.values()
            gate.opened.set()
            assert await child.wait() == ChildStatus("completed", "after the first")
            await session.run("and now")
        asked = [
            request for request in server.requests if CHILD in request.raw.decode() and "hold" in request.tool_names
        ]
        asked = [request for request in asked if "spawn_agent" not in request.tool_names]
        assert "FIRST" in asked[1].raw.decode() and "SECOND" not in asked[1].raw.decode()
        assert "SECOND" in asked[2].raw.decode()
        assert [answer["status"] for answer in outputs(server) if "timed_out" in answer] == [
            {child.id: {"completed": "after the second"}}
        ]


async def test_a_fork_begins_with_the_conversation(stage: Stage) -> None:
    script = ["I remember 4711", [spawn(fork_context=True), spawn(fork_context=True, model="m-9")], waiting(), "done"]
    with ScriptedModel(script) as server:
        server.play("child done", when=CHILD)
        async with await stage.open(server.base_url) as session:
            await session.run("remember 4711")
            await session.run("go")
        [asked] = [request for request in server.requests if CHILD in request.user_text]
        body = asked.raw.decode()
        assert "I remember 4711" in body and "spawn_agent" not in body and not server.failures
        assert "Full-history forked agents inherit" in str(outputs(server)[1])
        child = outputs(server)[0]["agent_id"]
        stored = stage.rollout(child)
        assert "I remember 4711" in str(stored.responses) and stored.meta.parent_thread_id == session.id


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "Provide one of: message or items"),
        ({"message": "a", "items": [{"text": "b"}]}, "Provide either message or items, but not both"),
        ({"message": " "}, "Empty message can't be sent to an agent"),
        ({"items": []}, "Items can't be empty"),
        ({"items": [{"type": "image"}]}, "needs image_url"),
    ],
)
async def test_input_that_says_nothing_is_refused(stage: Stage, arguments: dict[str, Any], words: str) -> None:
    script: list[Any] = [
        [function_call("spawn_agent", arguments)],
        [function_call("send_input", {"id": "x", **arguments})],
        "done",
    ]
    with ScriptedModel(script) as server:
        async with await stage.open(server.base_url) as session:
            await session.run("go")
        assert [words in str(text) for text in outputs(server)] == [True, True]


async def test_what_is_not_there_is_said(stage: Stage) -> None:
    script: list[Any] = [
        [
            function_call("send_input", {"id": "x", "message": "a"}),
            function_call("wait", {"ids": ["x"]}),
            function_call("wait", {"ids": ["x"], "timeout_ms": 0}),
            function_call("resume_agent", {"id": "x"}),
            function_call("close_agent", {"target": "x"}),
            function_call("list_agents", {}),
        ],
        "done",
    ]
    with ScriptedModel(script) as server:
        async with await stage.open(server.base_url, ephemeral=True) as session:
            await session.run("go")
        sent, waited, zero, resumed, closed, listed = outputs(server)
        assert "agent with id x not found" in sent and "stores nothing" in resumed
        assert waited == {"status": {"x": "not_found"}, "timed_out": False}
        assert "timeout_ms must be greater than zero" in zero
        assert closed == {"previous_status": "not_found"} and listed == {"agents": []}


async def test_children_are_listed_and_end_with_their_parent(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([[spawn()], [function_call("list_agents", {})], "done"]) as server:
        server.play([function_call("hold", {})], when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            await session.run("go")
            [child] = session._dialogue.children._children.values()
            await gate.began.wait()
        [listed] = outputs(server)[1]["agents"]
        assert listed == {"agent_id": child.id, "agent_type": None, "status": "running"}
        assert child.status.state == "shutdown" and child.session is None


async def test_a_wait_ends_with_its_time(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([]) as server:
        server.play([function_call("hold", {})], when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            children = session._dialogue.children
            assert await children.wait([child.id], 0.05) == {}
            assert await children.wait([child.id, "x"], 60) == {"x": ChildStatus("not_found")}


async def test_the_trained_namespace_is_understood(stage: Stage) -> None:
    with ScriptedModel([[{**spawn(), "namespace": "multi_agent_v1"}], waiting(), "done"]) as server:
        server.play("ok", when=CHILD)
        async with await stage.open(server.base_url) as session:
            await session.run("go")
        assert {"completed": "ok"} in outputs(server)[1]["status"].values()


async def test_an_agent_is_a_tool_of_another(stage: Stage) -> None:
    with ScriptedModel([[function_call("ask_expert", {"message": "EXPERT QUESTION"})], "done"]) as server:
        server.play("the answer", when="EXPERT QUESTION")
        expert = Agent("m-2", tools=[], base_url=server.base_url, cwd=stage.folder)
        tools = [expert.as_tool("ask_expert", "Knows everything.")]
        async with await stage.open(server.base_url, tools=tools) as session:
            await session.run("go")
        assert outputs(server) == ["the answer"]
        assert "Knows everything." in server.requests[0].raw.decode()


async def test_an_agent_may_be_named_twice_in_a_wait(stage: Stage) -> None:
    gate = Gate()
    with held_children(gate) as server:
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            await gate.began.wait()
            waiting = asyncio.create_task(session._dialogue.children.wait([child.id, child.id], 60))
            await asyncio.sleep(0)
            child.interrupt()
            assert await waiting == {child.id: ChildStatus("interrupted")}


async def test_a_role_that_cannot_be_opened_is_said_and_takes_no_slot(stage: Stage) -> None:
    roles = {"bad": AgentRole(tools=("nonsense",))}
    with ScriptedModel([[spawn(role="bad")], [spawn()], waiting(), "done"]) as server:
        server.play("ok", when=CHILD)
        async with await stage.open(server.base_url, roles=roles, limit=1) as session:
            await session.run("go")
        assert outputs(server)[0] == "the agent cannot be opened: unknown tool 'nonsense'"
        assert {"completed": "ok"} in outputs(server)[2]["status"].values()


async def test_a_child_whose_sandbox_cannot_be_opened_is_said(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(toolset: Toolset) -> None:
        raise LaunchError("cannot protect /work: No space left on device")

    with ScriptedModel([[spawn()], "done"]) as server:
        async with await stage.open(server.base_url) as session:
            monkeypatch.setattr(Toolset, "warm_up", full)
            await session.run("go")
        assert outputs(server) == ["the agent cannot be opened: cannot protect /work: No space left on device"]


async def test_a_child_that_still_works_is_counted(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel(["done"]) as server:
        server.play([function_call("hold", {})], when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            await gate.began.wait()
            result = await session.run("go")
            assert child.status.state == "running"
            assert 0 < child.usage.input_tokens < result.usage.input_tokens
            assert result.usage == session.usage
            session.interrupt()
            await child.wait()
            gate.began.clear()
            server.play([function_call("hold", {})], when="MORE")
            server._player.lanes.reverse()
            child.send((InputText("MORE"),))
            await gate.began.wait()
        assert session.usage.input_tokens > result.usage.input_tokens, "also what its end cut off"
        assert child.session is None and 0 < child.usage.input_tokens < session.usage.input_tokens


@pytest.mark.parametrize(
    ("execute", "action"),
    [(SpawnAgentExecutor(), SpawnAgentAction(message="go")), (ListAgentsExecutor(), ListAgentsAction())],
)
async def test_without_a_session_there_are_no_children(execute: Any, action: Any, tmp_path: Path) -> None:
    with ToolContext.local(tmp_path) as ctx, pytest.raises(RespondToModel, match="there are no sub-agents here"):
        await execute(action, ctx)
