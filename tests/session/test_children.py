"""Sub-agents: a parent and its children over a real server, with real rollouts, questions and interrupts."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, tool
from ferrule.builtin.hints import LOOKS
from ferrule.builtin.list_agents import ListAgentsAction, ListAgentsExecutor
from ferrule.builtin.spawn_agent import SpawnAgentAction, SpawnAgentExecutor
from ferrule.dispatch.front_end import Callbacks
from ferrule.protocol.content import InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import ExecApproval, ItemCompleted, ThreadStarted, TurnCompleted
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ExternalSandbox,
    InContainer,
    InContainerReadOnly,
    ReadOnly,
    ReviewDecision,
    SandboxMode,
    WorkspaceWrite,
)
from ferrule.protocol.settings import AgentRole, Features, ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.sandbox.plan import Level
from ferrule.session.child_settings import child_settings, narrower_approval, narrower_sandbox
from ferrule.session.opening import Given, open_session, resume_settings
from ferrule.session.rollout import find_rollout, read_rollout
from ferrule.session.session import Session
from ferrule.testing import ScriptedModel, function_call, step
from ferrule.tools.answering import Approver, Questioned
from ferrule.tools.children import ChildOrder, ChildStatus
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.events import ChildEvent
from ferrule.tools.questions import Elicited
from tests.mcp.stub import server as stub
from tests.sandbox.conftest import require

WIRES: list[Wire] = ["responses", "chat", "messages"]
CHILD = "CHILD TASK"


class Stage:
    """A parent whose script is the server's main one; children say `CHILD TASK` in their first message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Any] = []

    async def open(
        self,
        url: str,
        wire: Wire = "responses",
        *,
        roles: dict[str, AgentRole] | None = None,
        tools: Sequence[Any] | None = (),
        limit: int = 6,
        depth: int = 1,
        approve: Approver | None = None,
        answer: Questioned | None = None,
        ephemeral: bool = False,
        resume: str | None = None,
        **fields: Any,
    ) -> Session:
        settings = Settings(
            cwd=str(self.folder),
            home=str(self.folder / "home"),
            model=ModelSettings(model="m-1"),
            provider=ProviderSettings(name="server", base_url=url, wire_api=wire, request_max_retries=0,
                                      stream_max_retries=0),
            sandbox_policy=fields.pop("sandbox", DangerFullAccess()),
            approval_policy=AskForApproval.NEVER if approve is None else AskForApproval.UNTRUSTED,
            features=Features(multi_agent=True),
            agents=roles or {},
            agent_max_threads=limit,
            agent_max_depth=depth,
            ephemeral=ephemeral,
            **fields,
        )  # fmt: skip
        stored = None
        if resume is not None:
            settings, stored = resume_settings(settings, resume, Given(tools=True, provider=True))
        front_end = Callbacks(self.events.append, approve, answer)
        return await open_session(settings, front_end, tools=tools, stored=stored)

    def rollout(self, session_id: str) -> Any:
        return read_rollout(find_rollout(str(self.folder / "home"), session_id))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def spawn(text: str = CHILD, **fields: Any) -> dict[str, Any]:
    return function_call("spawn_agent", {"message": text, **fields})


def outputs(server: ScriptedModel) -> list[Any]:
    """What tools have answered in the last request, decoded where it is JSON."""
    texts = [output.text for output in server.last_request.outputs]
    return [json.loads(text) if text.startswith("{") else text for text in texts]


def agent_id(request: Any, at: int = 0) -> str:
    """The id in the answer of the `at`-th spawn that the model has read."""
    found = [json.loads(output.text) for output in request.outputs if '"agent_id"' in output.text]
    return str([one for one in found if "agent_id" in one][at]["agent_id"])


def waiting(name: str = "wait", key: str = "ids", at: int = 0) -> Any:
    return lambda request: [function_call(name, {key: [agent_id(request, at)]})]


def to(name: str, **fields: Any) -> Any:
    return lambda request: [function_call(name, {"id": agent_id(request), **fields})]


class Gate:
    """A tool that waits until it is opened."""

    def __init__(self) -> None:
        self.began, self.opened = asyncio.Event(), asyncio.Event()

    @property
    def tool(self) -> Any:
        @tool(read_only=True)
        async def hold() -> str:
            self.began.set()
            await self.opened.wait()
            return "held"

        return hold


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
    script = [[spawn()], to("send_input", message="FIRST"), "wait a moment", to("send_input", message="SECOND"),
              waiting(), "done"]  # fmt: skip
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


async def test_input_can_interrupt(stage: Stage) -> None:
    gate = Gate()
    script = [[spawn()], to("send_input", message="STOP THAT", interrupt=True), waiting(), "done"]
    with ScriptedModel(script) as server:
        server.play([function_call("hold", {})], "as you say", when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            turn = asyncio.ensure_future(session.run("go"))
            await turn
        assert {"completed": "as you say"} in outputs(server)[2]["status"].values()


async def test_an_interrupt_of_the_parent_reaches_all(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([[spawn(), spawn()], lambda request: [function_call("wait", {"ids": [agent_id(request, 1)]})],
                        "again"]) as server:  # fmt: skip
        server.play([function_call("hold", {})], [function_call("hold", {})], when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            turn = asyncio.ensure_future(session.run("go"))
            await gate.began.wait()
            await asyncio.to_thread(server.wait_for_requests, 4)
            session.interrupt()
            assert (await turn).aborted
            children = list(session._dialogue.children._children.values())
            assert [(await child.wait()).state for child in children] == ["interrupted", "interrupted"]


async def test_an_interrupted_child_goes_on(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel(["one", to("resume_agent"), waiting(), "done"]) as server:
        server.play([function_call("hold", {})], "went on", when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            await session.run("hello")
            child = await session.spawn(CHILD)
            await gate.began.wait()
            child.interrupt()
            assert (await child.wait()).state == "interrupted"
            server.add()
            status = await session._dialogue.children.resume(child.id)
            assert status.state == "running"
            assert await child.wait() == ChildStatus("completed", "went on")


async def test_a_closed_child_is_opened_again_from_its_rollout(stage: Stage) -> None:
    with ScriptedModel(["one"]) as server:
        server.play("first", "second", when=CHILD)
        async with await stage.open(server.base_url) as session:
            await session.run("hello")
            child = await session.spawn(CHILD)
            await child.wait()
            children = session._dialogue.children
            assert await children.close(child.id) == ChildStatus("completed", "first")
            assert child.status.state == "shutdown"
            with pytest.raises(RespondToModel, match="is closed"):
                await children.send(child.id, ())
            assert await children.resume(child.id) == ChildStatus("completed", "first")
            await children.send(child.id, (InputText("MORE"),))
            await children._children[child.id].wait()
            assert children._children[child.id].status == ChildStatus("completed", "second")
        assert "first" in server.last_request.raw.decode() and "MORE" in server.last_request.raw.decode()
        first = session.id
        async with await stage.open(server.base_url, resume=first) as session:
            assert await session._dialogue.children.resume(child.id) == ChildStatus("completed", "second")
        async with await stage.open(server.base_url) as stranger:
            with pytest.raises(RespondToModel, match="not found"):
                await stranger._dialogue.children.resume(child.id)


async def test_b149_finished_children_free_their_slots(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([]) as server:
        server.play(*["ok"] * 6, when=CHILD)
        server.play(*[[function_call("hold", {})]] * 3, when="HOLD")
        async with await stage.open(server.base_url, limit=3, tools=[gate.tool]) as session:
            first = [await session.spawn(CHILD) for _ in range(3)]
            for child in first:
                await child.wait()
            second = [await session.spawn(CHILD) for _ in range(3)]
            assert [child.status for child in first] == [ChildStatus("completed", "ok")] * 3, "results are kept"
            for child in second:
                await child.wait()
            held = [await session.spawn("HOLD") for _ in range(3)]
            with pytest.raises(RespondToModel, match="at most 3 agents") as refused:
                await session.spawn(CHILD)
            assert all(child.id in str(refused.value) for child in held)
            children = session._dialogue.children
            assert await children.close(held[0].id) == ChildStatus("running")
            assert await children.close("nobody") == ChildStatus("not_found")
            await session.spawn("HOLD")


async def test_slots_are_not_taken_twice_by_spawns_at_once(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([]) as server:
        server.play(*[[function_call("hold", {})]] * 4, when="HOLD")
        async with await stage.open(server.base_url, limit=2, tools=[gate.tool]) as session:
            done = await asyncio.gather(*(session.spawn("HOLD") for _ in range(4)), return_exceptions=True)
            assert sum(isinstance(one, RespondToModel) for one in done) == 2


async def test_depth_is_limited(stage: Stage) -> None:
    with ScriptedModel([[spawn()], waiting(), "done"]) as server:
        server.play([spawn("GRANDCHILD")], "child done", when=CHILD)
        async with await stage.open(server.base_url) as session:
            await session.run("go")
        asked = [request for request in server.requests if CHILD in request.user_text]
        assert "unsupported" in asked[-1].raw.decode() or "depth limit" in asked[-1].raw.decode()


async def test_a_child_may_have_children_where_the_settings_say_so(stage: Stage) -> None:
    with ScriptedModel([[spawn()], waiting(), "done"]) as server:
        server.play([spawn("GRAND")], waiting(), "child done", when=CHILD)
        server.play("grand done", when="GRAND")
        async with await stage.open(server.base_url, depth=2) as session:
            result = await session.run("go")
        assert {"completed": "child done"} in outputs(server)[1]["status"].values()
        threads = {event.thread_id: event.parent_thread_id for event in stage.events if isinstance(event, ChildEvent)}
        assert len(threads) == 2 and session.id in threads.values()
        assert any(parent in threads for parent in threads.values())
        assert result.usage.input_tokens > 0


async def test_roles_narrow_and_change(stage: Stage) -> None:
    roles = {
        "reader": AgentRole(description="reads only", model="m-2", tools=("read_file",),
                            instructions="Read, never write.", sandbox_mode=SandboxMode.READ_ONLY),
        "plain": AgentRole(),
    }  # fmt: skip
    with ScriptedModel([[spawn(role="reader", instructions="Be quick.")], waiting(), [spawn(agent_type="nobody")],
                        "done"]) as server:  # fmt: skip
        server.play("ok", when=CHILD)
        async with await stage.open(server.base_url, roles=roles) as session:
            await session.run("go")
        [asked] = [request for request in server.requests if CHILD in request.user_text]
        assert asked.body["model"] == "m-2" and asked.tool_names == ["read_file"]
        instructions = str(asked.body["instructions"])
        assert "Read, never write." in instructions and "Be quick." in instructions
        assert "<sandbox_mode>read-only</sandbox_mode>" in asked.raw.decode()
        described = server.requests[0].raw.decode()
        assert "- reader: reads only" in described and "- plain" in described
        assert "unknown agent_type 'nobody'; there are: reader, plain" in str(outputs(server)[-1])
        meta = stage.rollout(outputs(server)[0]["agent_id"]).meta
        assert meta.agent_role == "reader"


def test_a_child_never_has_more_rights() -> None:
    inside = WorkspaceWrite(writable_roots=("/x",), network_access=True)
    modes = SandboxMode
    assert narrower_sandbox(inside, modes.DANGER_FULL_ACCESS) is inside
    assert narrower_sandbox(inside, modes.WORKSPACE_WRITE) is inside
    assert narrower_sandbox(inside, modes.READ_ONLY) == ReadOnly(network_access=True)
    assert narrower_sandbox(inside, modes.CONTAINER) == InContainer(writable_roots=("/x",)), "it has no whole network"
    names, hosts = ("a.example",), {"a.example:80": "127.0.0.1:1"}
    listed = InContainer(network_access=names, hosts=hosts, ca_file="/y")
    read_only = InContainerReadOnly(network_access=names, hosts=hosts, ca_file="/y")
    assert narrower_sandbox(listed, modes.READ_ONLY) == read_only, "they share its network"
    outside = WorkspaceWrite(network_access=names, hosts=hosts, ca_file="/y")
    assert narrower_sandbox(outside, modes.CONTAINER) == listed
    assert narrower_sandbox(ReadOnly(), modes.DANGER_FULL_ACCESS) == ReadOnly()
    assert narrower_sandbox(ExternalSandbox(), modes.DANGER_FULL_ACCESS) == ExternalSandbox()
    assert narrower_sandbox(ExternalSandbox(network_access="enabled"), modes.READ_ONLY) == ReadOnly()
    assert narrower_sandbox(ExternalSandbox(), modes.WORKSPACE_WRITE) == WorkspaceWrite()
    assert narrower_sandbox(DangerFullAccess(), modes.WORKSPACE_WRITE) == WorkspaceWrite()
    assert narrower_sandbox(DangerFullAccess(), None) == DangerFullAccess()
    contained = InContainer(image="small", writable_roots=("/srv",))
    assert narrower_sandbox(contained, modes.READ_ONLY) == InContainerReadOnly(image="small", folders=("/srv",))
    for wanted in (modes.WORKSPACE_WRITE, modes.CONTAINER, modes.DANGER_FULL_ACCESS):
        assert narrower_sandbox(contained, wanted) is contained
    assert narrower_sandbox(WorkspaceWrite(writable_roots=("/a",)), modes.CONTAINER) == InContainer(
        writable_roots=("/a",)
    )
    assert narrower_sandbox(ReadOnly(), modes.CONTAINER) == ReadOnly()
    asks = AskForApproval
    assert narrower_approval(asks.ON_REQUEST, asks.NEVER) is asks.ON_REQUEST
    assert narrower_approval(asks.NEVER, asks.UNTRUSTED) is asks.UNTRUSTED
    settings = Settings(cwd="/", home="/h", features=Features(multi_agent=True), tools=("bash", "spawn_agent"))
    child = child_settings(settings, "m", ChildOrder(content=()), AgentRole(), may_spawn=False)
    assert child.tools == ("bash",) and not child.features.multi_agent and child.model.model == "m"
    assert child.instructions is None


async def test_b151_questions_reach_the_parents_user_and_name_the_child(stage: Stage) -> None:
    asked: list[Any] = []

    def approve(question: Any) -> ReviewDecision:
        asked.append(question)
        return ReviewDecision.APPROVED if "yes" in question.text else ReviewDecision.DENIED

    rules = stage.folder / "home" / "rules"
    rules.mkdir(parents=True)
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch", "allowed"], decision="allow")\n')
    with ScriptedModel([[spawn()], waiting(), "done"]) as server:
        commands = ["touch allowed", "touch yes", "touch no"]
        server.play([function_call("exec_command", {"cmd": cmd}) for cmd in commands], "child done", when=CHILD)
        async with await stage.open(server.base_url, tools=["exec_command"], approve=approve) as session:
            await session.run("go")
            [child] = session._dialogue.children.infos()
    assert [question.agent_id for question in asked] == [child.agent_id] * 2
    assert all(isinstance(question, ExecApproval) and "sub-agent" in str(question.reason) for question in asked)
    names = {path.name for path in stage.folder.iterdir()}
    assert {"allowed", "yes"} <= names and "no" not in names
    assert [event for event in stage.events if isinstance(event, ExecApproval)] == asked


async def test_b151_without_a_user_a_child_fails_fast(stage: Stage) -> None:
    with ScriptedModel([[spawn()], waiting(), "done"]) as server:
        server.play([function_call("request_user_input", {"questions": [{"id": "a", "question": "?"}]})], "no answer",
                    when=CHILD)  # fmt: skip
        async with await stage.open(server.base_url, tools=["request_user_input"]) as session:
            await session.run("go")
        assert {"completed": "no answer"} in outputs(server)[1]["status"].values()


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


def held_children(gate: Gate, count: int = 1) -> ScriptedModel:
    server = ScriptedModel([])
    server.play(*[[function_call("hold", {})]] * count, when=CHILD)
    return server


async def test_a_child_that_is_yet_to_begin_is_reached(stage: Stage) -> None:
    with ScriptedModel([]) as server:
        server.play("read both", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD)
            child.send((InputText("AND THIS"),))
            session.interrupt()
            assert await child.wait(10) == ChildStatus("interrupted") and not server.requests
            await session._dialogue.children.resume(child.id)
            assert await child.wait() == ChildStatus("completed", "read both")
        [asked] = server.requests
        assert CHILD in asked.user_text and "AND THIS" in asked.user_text and "interrupted" not in asked.user_text


async def test_what_is_said_as_a_turn_ends_is_answered(stage: Stage) -> None:
    with ScriptedModel([]) as server:
        server.play("first", "second", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD)

            def late(event: Any) -> None:
                if isinstance(event, ChildEvent) and isinstance(event.event, TurnCompleted) and len(said) < 1:
                    said.append(event)
                    child.send((InputText("LATE"),))

            said: list[Any] = []
            with session.toolset.host.listening(late):
                assert await child.wait() == ChildStatus("completed", "second")
        assert "LATE" in server.last_request.user_text


async def test_no_message_that_interrupts_is_lost(stage: Stage) -> None:
    gate = Gate()
    with held_children(gate) as server:
        server.play("read", when="SECOND")
        server._player.lanes.reverse()
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            await gate.began.wait()
            child.send((InputText("FIRST"),), interrupt=True)
            child.send((InputText("SECOND"),), interrupt=True)
            assert await child.wait() == ChildStatus("completed", "read")
        assert "FIRST" in server.last_request.user_text and "SECOND" in server.last_request.user_text


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


async def test_a_close_that_is_cancelled_still_ends_the_session(stage: Stage) -> None:
    gate = Gate()
    with held_children(gate) as server:
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            await gate.began.wait()
            closing = asyncio.create_task(session._dialogue.children.close(child.id))
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert child.status == ChildStatus("shutdown")
            await asyncio.wait_for(child.closed(), 10)
            spent = session._dialogue.children.new_usage()
            assert spent.input_tokens > 0, "what it has used is counted"


@pytest.mark.parametrize("ended", [True, False])
async def test_a_rollout_is_opened_once(stage: Stage, ended: bool) -> None:
    """Two resumes at once open one session; one that its parent's end overtakes is closed."""
    with ScriptedModel([]) as server:
        server.play("said", when=CHILD)
        session = await stage.open(server.base_url)
        try:
            child = await session.spawn(CHILD)
            await child.wait()
            children = session._dialogue.children
            await children.close(child.id)
            opened: list[Any] = []
            reached, go = asyncio.Event(), asyncio.Event()
            reopen = children._reopen_child

            async def slowly(agent_id: str, front_end: Callbacks) -> Any:
                reached.set()
                await go.wait()
                opened.append(await reopen(agent_id, front_end))
                return opened[-1]

            children._reopen_child = slowly
            resumes = [asyncio.create_task(children.resume(child.id)) for _ in range(1 if ended else 2)]
            await reached.wait()
            if ended:
                await session.aclose()
            go.set()
            if ended:
                with pytest.raises(RespondToModel, match="has ended"):
                    await resumes[0]
            else:
                assert await asyncio.gather(*resumes) == [ChildStatus("completed", "said")] * 2
            assert len(opened) == 1
        finally:
            await session.aclose()


async def test_a_role_that_cannot_be_opened_is_said_and_takes_no_slot(stage: Stage) -> None:
    roles = {"bad": AgentRole(tools=("nonsense",))}
    with ScriptedModel([[spawn(role="bad")], [spawn()], waiting(), "done"]) as server:
        server.play("ok", when=CHILD)
        async with await stage.open(server.base_url, roles=roles, limit=1) as session:
            await session.run("go")
        assert outputs(server)[0] == "the agent cannot be opened: unknown tool 'nonsense'"
        assert {"completed": "ok"} in outputs(server)[2]["status"].values()


async def test_a_resumed_child_is_what_it_was(stage: Stage) -> None:
    with ScriptedModel([], models=["m-1", "m-2"]) as server:
        server.play("first", "second", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD, model="m-2", instructions="Be quick.")
            await child.wait()
            children = session._dialogue.children
            await children.close(child.id)
            await children.resume(child.id)
            await children.send(child.id, (InputText("MORE"),))
            await children._children[child.id].wait()
        first, second = server.requests
        assert second.body["model"] == "m-2" and second.body["instructions"] == first.body["instructions"]


async def test_a_child_that_still_works_is_counted(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel(["done"]) as server:
        server.play([function_call("hold", {})], when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            await gate.began.wait()
            result = await session.run("go")
            assert child.status.state == "running"
            assert 0 < child.counted.input_tokens < result.usage.input_tokens
            assert result.usage == session.usage
            session.interrupt()
            await child.wait()
            gate.began.clear()
            server.play([function_call("hold", {})], when="MORE")
            server._player.lanes.reverse()
            child.send((InputText("MORE"),))
            await gate.began.wait()
        assert session.usage.input_tokens > result.usage.input_tokens, "also what its end cut off"


async def test_the_parents_end_waits_for_a_child_that_is_being_closed(stage: Stage) -> None:
    ends: list[str] = []
    go = asyncio.Event()
    with ScriptedModel([]) as server:
        server.play("ok", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD)
            await child.wait()
            assert child.session is not None
            child_end, model_end = child.session.aclose, session.model.aclose

            async def slowly() -> None:
                await go.wait()
                await child_end()
                ends.append("child")

            async def noted() -> None:
                ends.append("model")
                await model_end()

            child.session.aclose, session.model.aclose = slowly, noted  # type: ignore[method-assign]
            closing = asyncio.create_task(session._dialogue.children.close(child.id))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.2, go.set)
        await closing
    assert ends == ["child", "model"]


async def test_a_tool_that_the_parent_brought_is_closed_with_the_parent(stage: Stage) -> None:
    ends: list[str] = []

    class Held(ListAgentsExecutor):
        def close(self) -> None:
            ends.append("closed")

    mine = ToolDefinition(name="mine", description="d", executor=Held(), annotations=LOOKS)
    with ScriptedModel([[function_call("mine", {})], "done"]) as server:
        server.play([function_call("mine", {})], "used it", when=CHILD)
        async with await stage.open(server.base_url, tools=[mine]) as session:
            await session.run("go")
            child = await session.spawn(CHILD)
            assert await child.wait() == ChildStatus("completed", "used it")
            await session._dialogue.children.close(child.id)
            assert not ends
    assert ends == ["closed"]


async def test_b151_what_the_user_has_approved_for_the_session_holds_for_parent_and_children(stage: Stage) -> None:
    asked: list[str] = []

    def approve(question: Any) -> ReviewDecision:
        if "retry" in question.reason:
            return ReviewDecision.DENIED
        asked.append(question.text.split()[-1])
        return ReviewDecision.APPROVED_FOR_SESSION

    def touch(*names: str) -> list[dict[str, Any]]:
        return [function_call("exec_command", {"cmd": f"touch {name}"}) for name in names]

    reader = AgentRole(description="Looks", sandbox_mode=SandboxMode.READ_ONLY)
    spawns = [spawn(), spawn("READER TASK", agent_type="reader")]
    script: list[Any] = [touch("parents"), spawns[:1], waiting(), spawns[1:], waiting(at=1), touch("childs"), "done"]
    with ScriptedModel(script) as server:
        server.play(touch("parents", "childs"), "child done", when=CHILD)
        server.play(touch("parents"), "reader done", when="READER TASK")
        opened = await stage.open(server.base_url, tools=["exec_command"], approve=approve, roles={"reader": reader})
        async with opened as session:
            await session.run("go")
        assert not server.failures
    assert asked == ["parents", "childs", "parents"], "once each, and again by the one that has fewer rights"


async def test_b151_a_servers_question_during_a_childs_call_names_the_child(stage: Stage) -> None:
    asked: list[Any] = []

    def answer(question: Any) -> Elicited:
        asked.append(question)
        return Elicited("accept", {"ok": True})

    ask = [function_call("mcp__stub__ask", {})]
    with ScriptedModel([[spawn()], waiting(), ask, "done"]) as server:
        server.play(ask, "child done", when=CHILD)
        servers = {"stub": McpServerSettings(**stub(), approval="prompt")}
        front: dict[str, Any] = {"approve": lambda question: ReviewDecision.APPROVED, "answer": answer}
        async with await stage.open(server.base_url, mcp_servers=servers, **front) as session:
            await session.run("go")
            [child] = session._dialogue.children.infos()
        assert not server.failures
    approvals = [event for event in stage.events if isinstance(event, ExecApproval)]
    assert [question.agent_id for question in asked] == [child.agent_id, ""]
    assert [question.agent_id for question in approvals] == [child.agent_id, ""]


@pytest.mark.parametrize(
    ("execute", "action"),
    [(SpawnAgentExecutor(), SpawnAgentAction(message="go")), (ListAgentsExecutor(), ListAgentsAction())],
)
async def test_without_a_session_there_are_no_children(execute: Any, action: Any, tmp_path: Path) -> None:
    with ToolContext.local(tmp_path) as ctx, pytest.raises(RespondToModel, match="there are no sub-agents here"):
        await execute(action, ctx)


async def test_children_work_in_the_container_of_their_parent(stage: Stage) -> None:
    """What the parent's commands left there is there, and a child of fewer rights cannot write the project."""
    await require(Level.NAMESPACES)
    run = partial(function_call, "shell_command")
    roles = {"reader": AgentRole(sandbox_mode=SandboxMode.READ_ONLY)}
    script = "cat /tmp/left; touch made || echo closed; echo own > /tmp/of-child"
    with ScriptedModel(
        [
            run({"command": "echo from-parent > /tmp/left"}),
            spawn(agent_type="reader"),
            waiting(),
            run({"command": "cat /tmp/of-child; touch made"}),
            lambda request: request.outputs[-1].text,
        ]
    ) as server:
        server.play(run({"command": script}), "done", when=CHILD)
        async with await stage.open(
            server.base_url, roles=roles, tools=["shell_command"], sandbox=InContainer()
        ) as session:
            result = await session.run("go")
        said = [
            request.outputs[-1].text for request in server.requests if CHILD in request.user_text and request.outputs
        ]
    assert "from-parent\n" in said[0] and "closed\n" in said[0], said
    assert "own\n" in result.text and (stage.folder / "made").exists()
