"""What sub-agents may do: roles, narrower rights, and questions, which reach the parent's user."""

from functools import partial
from typing import Any

import pytest

from ferrule.protocol.events import ExecApproval
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
from ferrule.protocol.settings import AgentRole, Features, Settings
from ferrule.sandbox.plan import Level
from ferrule.session.child_settings import child_settings, narrower_approval, narrower_sandbox
from ferrule.testing import ScriptedModel, function_call
from ferrule.tools.children import ChildOrder
from ferrule.tools.events import ChildEvent
from ferrule.tools.questions import Elicited
from tests.mcp.stub import server as stub
from tests.sandbox.conftest import require
from tests.session.children import CHILD, PIXEL, Stage, outputs, spawn, to, waiting


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
    task = [{"type": "text", "text": CHILD}, {"type": "image", "image_url": PIXEL}]
    more = {"role": "reader", "instructions": "Be quick.", "reasoning_effort": "low"}
    order = function_call("spawn_agent", {"items": task, **more})
    with ScriptedModel([[order], waiting(), [spawn(agent_type="nobody")],
                        "done"]) as server:  # fmt: skip
        server.play("ok", when=CHILD)
        async with await stage.open(server.base_url, roles=roles) as session:
            await session.run("go")
        [asked] = [request for request in server.requests if CHILD in request.user_text]
        assert asked.body["model"] == "m-2" and asked.tool_names == ["read_file"]
        assert asked.body["reasoning"] == {"effort": "low"} and PIXEL in asked.raw.decode()
        instructions = str(asked.body["instructions"])
        assert "Read, never write." in instructions and "Be quick." in instructions
        assert "<sandbox_mode>read-only</sandbox_mode>" in asked.raw.decode()
        described = server.requests[0].raw.decode()
        assert "- reader: reads only" in described and "- plain" in described
        assert "unknown agent_type 'nobody'; there are: reader, plain" in str(outputs(server)[-1])
        meta = stage.rollout(outputs(server)[0]["agent_id"]).meta
        assert meta.agent_role == "reader"


async def test_a_program_says_of_a_child_what_a_model_says(stage: Stage) -> None:
    roles = {"reader": AgentRole(model="m-2", instructions="Read, never write.")}
    with ScriptedModel(["I remember 4711"], models=["m-1", "m-2"]) as server:
        server.play("one", "two", when=CHILD)
        async with await stage.open(server.base_url, roles=roles) as session:
            await session.run("remember 4711")
            child = await session.spawn(CHILD, role="reader", instructions="Be quick.", reasoning_effort="low")
            await child.wait()
            await (await session.spawn(CHILD, fork=True)).wait()
        _, said, forked = server.requests
    assert (said.body["model"], said.body["reasoning"]) == ("m-2", {"effort": "low"})
    assert "Read, never write.\n\nBe quick." in str(said.body["instructions"])
    assert "I remember 4711" in forked.raw.decode() and "I remember 4711" not in said.raw.decode()


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


@pytest.mark.parametrize("used", [True, False])
async def test_a_child_that_is_closed_leaves_the_servers_to_its_parent(stage: Stage, *, used: bool) -> None:
    echo = [function_call("mcp__stub__echo", {"text": "here"})]
    with ScriptedModel([[spawn()], waiting(), to("close_agent"), echo, "done"]) as server:
        server.play(*([echo] if used else []), "child done", when=CHILD)
        servers = {"stub": McpServerSettings(**stub(), approval="allow")}
        async with await stage.open(server.base_url, mcp_servers=servers) as session:
            await session.run("go")
            assert outputs(server)[-1] == "ECHO: here"
        assert not server.failures
