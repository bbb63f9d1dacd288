"""A toolset in the OpenAI Agents SDK: the real SDK against a scripted model, over both wires.

The SDK takes seconds to import, so only the worker that runs these tests does.
"""

import asyncio
import base64
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ferrule import Action, ToolContext, ToolDefinition, ToolExecutor, Toolset, tool
from ferrule.mcp import create_mcp_tools
from ferrule.protocol.content import InputText
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.payload import NO_SCREENSHOT
from ferrule.testing import ScriptedModel, apply_patch_call, custom_tool_call, function_call, shell_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple, StepLike
from tests.gateway.served import new_place, serving
from tests.image_generation.painter import colour_at, painter
from tests.integrations.frameworks import program
from tests.mcp.stub import server
from tests.processes import children, until

if TYPE_CHECKING:
    import agents

WIRES = ("responses", "chat")
TOUCH = function_call("shell_command", {"command": "touch made"})
PNG = base64.b64decode(NO_SCREENSHOT.partition(",")[2])
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+grüße\n*** End Patch"


class Place:
    """A folder, and a model that plays a script to agents with a toolset there."""

    def __init__(self, sdk: Any, folder: Path) -> None:
        self.sdk = sdk
        self.folder = folder
        self.script = ScriptedModel()
        self.clients: list[Any] = []

    def toolset(self, *tools: Any, policy: str = "untrusted", model: str = "gpt-4.1", **more: Any) -> Toolset:
        """A toolset without a sandbox."""
        more = {"sandbox": "danger-full-access", "tools": tools or ("shell_command",)} | more
        return Toolset.for_model(model, cwd=self.folder, approval_policy=policy, **more)

    def agent(self, toolset: Toolset, wire: Any, *steps: StepLike, **more: Any) -> "agents.Agent":
        """An agent whose model says `steps`."""
        from openai import AsyncOpenAI

        from ferrule.integrations.openai_agents import tools

        self.script.add(*steps)
        client = AsyncOpenAI(base_url=self.script.base_url, api_key="unused", max_retries=0)
        self.clients.append(client)
        kind = self.sdk.OpenAIResponsesModel if wire == "responses" else self.sdk.OpenAIChatCompletionsModel
        made: agents.Agent = self.sdk.Agent(
            name="agent", tools=tools(toolset, wire=wire), model=kind("scripted-model", client), **more
        )
        return made

    async def close(self) -> None:
        """Close what agents connected with."""
        for client in self.clients:
            await client.close()

    async def run(self, agent: "agents.Agent", asked: Any = "go") -> Any:
        """Run the agent until it ends or is interrupted."""
        return await self.sdk.Runner.run(agent, asked)


@pytest.fixture(scope="module")
def sdk() -> Any:
    import agents

    agents.set_tracing_disabled(True)
    return agents


@pytest.fixture
async def place(sdk: Any, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(sdk, tmp_path)
    with made.script:
        yield made
        await made.close()
        made.script.check()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def decide(result: Any, *approved: bool) -> Any:
    """The state of an interrupted run after these decisions."""
    state = result.to_state()
    for item, yes in zip(result.interruptions, approved, strict=True):
        (state.approve if yes else state.reject)(item)
    return state


def outputs(place: Place) -> list[Any]:
    """The items of the second request that answer calls, in call order."""
    items = cast("list[Any]", place.script.requests[1].body["input"])
    return sorted((item for item in items if "output" in item), key=lambda item: item["call_id"])


async def test_text_errors_and_freeform_tools(place: Place, wire: str) -> None:
    @tool
    def greet(name: str) -> str:
        """Greet."""
        return f"grüß dich, {name} 👋"

    calls = [
        function_call("greet", {"name": "Jürgen"}),
        function_call("apply_patch", {"input": PATCH}),
        function_call("greet", {"nam": 1}),
        function_call("shell_command", {"command": "exit 3"}),
    ]
    tools = (greet, "apply_patch", "shell_command")
    async with place.toolset(*tools, policy="never", model="gpt-5.5") as toolset:
        result = await place.run(place.agent(toolset, wire, calls, "done"))
    said = list(place.script.outputs().values())
    assert result.final_output == "done"
    assert said[0] == "grüß dich, Jürgen 👋"
    assert "A new.txt" in said[1]
    assert "nam" in said[2]
    assert said[3].startswith("Exit code: 3")
    assert (place.folder / "new.txt").read_text() == "grüße\n"
    assert "greet" in place.script.requests[0].tool_names


async def test_a_strict_tool_is_sent_as_one(place: Place, wire: str) -> None:
    @tool(strict=True)
    def greet(name: str) -> str:
        """Greet."""
        return name

    async with place.toolset(greet) as toolset:
        await place.run(place.agent(toolset, wire, "done"))
    [sent] = cast("list[Any]", place.script.requests[0].body["tools"])
    assert sent.get("function", sent)["strict"] is True


async def test_an_image_is_shown(place: Place, wire: str) -> None:
    (place.folder / "a.png").write_bytes(PNG)
    async with place.toolset("view_image") as toolset:
        await place.run(place.agent(toolset, wire, function_call("view_image", {"path": "a.png"}), "seen"))
    if wire == "responses":
        [answer] = outputs(place)
        assert answer["output"] == [{"type": "input_image", "image_url": NO_SCREENSHOT}]
    else:  # the SDK's model for Chat Completions has no images in outputs, and says so
        assert place.script.outputs() == {"call_1": "[tool output omitted]"}


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_interrupts_the_run(place: Place, wire: str, approved: bool) -> None:
    async with place.toolset() as toolset:
        agent = place.agent(toolset, wire, TOUCH, "done")
        asked = await place.run(agent)
        [item] = asked.interruptions
        assert (item.tool_name, json.loads(item.arguments)) == ("shell_command", {"command": "touch made"})
        assert os.listdir(place.folder) == []
        assert (await place.run(agent, decide(asked, approved))).final_output == "done"
    assert (place.folder / "made").exists() is approved
    said = place.script.outputs()["call_1"]
    assert said.startswith("Exit code: 0") if approved else "not approved" in said


async def test_what_is_safe_is_not_asked_for(place: Place) -> None:
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", function_call("shell_command", {"command": "pwd"}), "done")
        assert (await place.run(agent)).interruptions == []
    assert str(place.folder) in place.script.outputs()["call_1"]


async def test_parallel_calls_are_decided_each_for_itself(place: Place, wire: str) -> None:
    one, two = (function_call("shell_command", {"command": f"touch {name}"}) for name in ("one", "two"))
    async with place.toolset() as toolset:
        agent = place.agent(toolset, wire, [one, two], "done")
        asked = await place.run(agent)
        await place.run(agent, decide(asked, False, True))
    assert os.listdir(place.folder) == ["two"]


async def test_parallel_calls_run_beside_each_other(place: Place) -> None:
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.01; done"
    calls = [function_call("shell_command", {"command": meet.format(*names)}) for names in (("a", "b"), ("b", "a"))]
    async with place.toolset(policy="never") as toolset:
        await place.run(place.agent(toolset, "responses", calls, "done"))
    assert all(output.startswith("Exit code: 0") for output in place.script.outputs().values())


async def test_an_approval_is_for_what_was_shown(place: Place) -> None:
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"
    (place.folder / "a.txt").write_text("old\n")
    async with place.toolset("apply_patch") as toolset:
        agent = place.agent(toolset, "responses", function_call("apply_patch", {"input": patch}), "done")
        asked = await place.run(agent)
        (place.folder / "a.txt").write_text("secret\nold\n")
        await place.run(agent, decide(asked, True))
    assert "what was approved is not what the call would do now" in place.script.outputs()["call_1"]
    assert (place.folder / "a.txt").read_text() == "secret\nold\n"


async def test_a_refused_call_that_comes_again_under_its_id_is_looked_at_anew(place: Place) -> None:
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"
    call = function_call("apply_patch", {"input": patch}, call_id="same")
    (place.folder / "a.txt").write_text("old\n")
    async with place.toolset("apply_patch") as toolset:
        agent = place.agent(toolset, "responses", call, "refused", call, "done")
        await place.run(agent, decide(await place.run(agent), False))
        (place.folder / "a.txt").write_text("theirs\nold\n")
        await place.run(agent, decide(await place.run(agent, "again"), True))
    assert (place.folder / "a.txt").read_text() == "theirs\nnew\n"


async def test_another_command_under_the_same_call_id_is_asked_for_again(place: Place) -> None:
    calls = [function_call("shell_command", {"command": f"touch {name}"}, call_id="same") for name in ("one", "two")]
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", calls[0], "done", calls[1])
        done = await place.run(agent, decide(await place.run(agent), True))
        again = await place.run(agent, [*done.to_input_list()[:1], {"role": "user", "content": "again"}])
        assert len(again.interruptions) == 1
    assert os.listdir(place.folder) == ["one"]


async def test_an_interrupted_run_goes_on_in_another_program(place: Place) -> None:
    async with place.toolset() as toolset:
        stored = (await place.run(place.agent(toolset, "responses", TOUCH))).to_state().to_string()
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", "done")
        state = await place.sdk.RunState.from_string(agent, stored)
        [item] = state.get_interruptions()
        state.approve(item)
        assert (await place.run(agent, state)).final_output == "done"
    assert (place.folder / "made").exists()


async def test_a_tool_that_is_always_approved_is_not_asked_for_again(place: Place) -> None:
    two = function_call("shell_command", {"command": "touch two"})
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", TOUCH, two, "done")
        asked = await place.run(agent)
        state = asked.to_state()
        state.approve(asked.interruptions[0], always_approve=True)
        assert (await place.run(agent, state)).final_output == "done"
    assert sorted(os.listdir(place.folder)) == ["made", "two"]


class AskAction(Action):
    """Run what asks in the midst of its work."""


class AsksLate(ToolExecutor[AskAction, Any]):
    """Works, then asks."""

    async def __call__(self, action: AskAction, ctx: ToolContext) -> str:
        from ferrule.tools.effects import CommandEffect

        async def nothing(access: object) -> None:
            return None

        await ctx.run(CommandEffect(argv=("rm", "-r", "x"), cwd=ctx.cwd), nothing)
        return "ran"


@pytest.mark.parametrize("answer", [None, True])
async def test_what_is_asked_late_goes_to_on_approval(place: Place, answer: bool | None) -> None:
    asked: list[str] = []

    def on_approval(question: ExecApproval) -> bool:
        asked.append(question.text)
        return True

    late: Any = ToolDefinition(executor=AsksLate())
    async with place.toolset(late, on_approval=on_approval if answer else None) as toolset:
        result = await place.run(place.agent(toolset, "responses", function_call("ask", {}), "done"))
    assert result.interruptions == []
    assert asked == (["rm -r x"] if answer else [])
    assert ("rejected by user" in place.script.outputs()["call_1"]) is (answer is None)


async def test_an_mcp_tool(place: Place, wire: str) -> None:
    made = await asyncio.to_thread(create_mcp_tools, {"mcpServers": {"stub": server()}})
    mcp = [one for one in made if one.mcp_tool.name in ("echo", "write")]
    calls = [function_call(f"mcp__stub__{name}", {"text": "ä"}) for name in ("echo", "write")]
    async with place.toolset(*mcp) as toolset:
        agent = place.agent(toolset, wire, calls, "done")
        asked = await place.run(agent)
        assert [item.tool_name for item in asked.interruptions] == ["mcp__stub__write"]
        await place.run(agent, decide(asked, True))
    assert place.script.outputs()["call_1"] == "ECHO: ä"
    assert "call_2" in place.script.outputs()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_run_ends_the_process(place: Place, streamed: bool) -> None:
    script = f"echo $$ > pid; trap 'echo > {place.folder}/ended; exit' TERM; while :; do sleep 0.01; done"
    async with place.toolset(policy="never") as toolset:
        agent = place.agent(
            toolset, "responses", function_call("shell_command", {"command": script, "timeout_ms": 60000})
        )

        async def stream() -> None:
            result = place.sdk.Runner.run_streamed(agent, "go")
            try:
                async for _ in result.stream_events():
                    pass
            finally:
                result.cancel()

        run = asyncio.create_task(stream() if streamed else place.run(agent))
        await until((place.folder / "pid").exists)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until((place.folder / "ended").exists)


@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")  # of the SDK's own client
def test_a_plain_program_runs_it_twice(sdk: Any, tmp_path: Path) -> None:
    place = Place(sdk, tmp_path)
    kept = function_call("exec_command", {"cmd": "sleep 60", "yield_time_ms": 250})
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # the SDK takes it, else it makes one that nobody closes
    with place.script, place.toolset("exec_command", policy="never") as toolset:
        agent = place.agent(toolset, "responses", kept, "one", "two")
        assert sdk.Runner.run_sync(agent, "go").final_output == "one"
        assert sdk.Runner.run_sync(agent, "again").final_output == "two"
        assert "session ID" in place.script.outputs()["call_1"]
        loop.run_until_complete(place.close())
    asyncio.set_event_loop(None)
    loop.close()


async def test_native_tools_for_responses(place: Place) -> None:
    tools = ("native_shell", "native_apply_patch")
    patch = apply_patch_call("create_file", "ä.txt", "+eins\n+zwei")
    wrong = apply_patch_call("update_file", "none.txt", "@@\n-a\n+b")
    async with place.toolset(*tools) as toolset:
        agent = place.agent(toolset, "responses", [shell_call(["pwd", "echo hü && ls none"]), patch, wrong], "done")
        kinds = [type(one).__name__ for one in agent.tools]
        assert kinds == ["ShellTool", "ApplyPatchTool"]
        asked = await place.run(agent)
        assert [item.tool_name for item in asked.interruptions] == ["apply_patch"]  # the wrong one fails unasked
        await place.run(agent, decide(asked, True))
    shell, created, failed = outputs(place)
    assert [one["outcome"] for one in shell["output"]] == [{"type": "exit", "exit_code": code} for code in (0, 2)]
    assert shell["output"][1]["stdout"] == "hü\n"
    assert (created["status"], failed["status"]) == ("completed", "failed")
    assert "none.txt" in failed["output"]
    assert (place.folder / "ä.txt").read_text() == "eins\nzwei\n"


async def test_each_script_of_a_native_call_has_its_approval(place: Place) -> None:
    async with place.toolset("native_shell") as toolset:
        agent = place.agent(toolset, "responses", shell_call(["pwd", "touch one", "touch two"]), "done")
        asked = await place.run(agent)
        assert len(asked.interruptions) == 1
        await place.run(agent, decide(asked, True))
    assert sorted(os.listdir(place.folder)) == ["one", "two"]


async def test_native_tools_are_functions_for_chat(place: Place) -> None:
    async with place.toolset("native_shell", "native_apply_patch", policy="never") as toolset:
        agent = place.agent(toolset, "chat", [TOUCH, function_call("apply_patch", {"input": PATCH})], "done")
        await place.run(agent)
    assert sorted(os.listdir(place.folder)) == ["made", "new.txt"]


async def test_tools_come_and_go(place: Place) -> None:
    from ferrule.protocol.dynamic_tools import DynamicToolSpec

    async with place.toolset(policy="never") as toolset:
        schema = {"type": "object", "properties": {}}
        toolset.add_dynamic_tools([DynamicToolSpec(name="extra", description="More.", input_schema=schema)])
        agent = place.agent(toolset, "responses", "one", "two")
        await place.run(agent)
        toolset.remove_dynamic_tools(["extra"])
        await place.run(agent)
    assert [request.tool_names for request in place.script.requests] == [["shell_command", "extra"], ["shell_command"]]


async def test_tools_that_a_search_finds_can_be_called(place: Place) -> None:
    from ferrule.protocol.dynamic_tools import DynamicToolResponse, DynamicToolSpec

    specs = [
        DynamicToolSpec(name=f"look_{number}", description=f"Look at thing {number}.", input_schema={"type": "object"})
        for number in range(60)
    ]
    async with place.toolset(policy="never") as toolset:
        toolset.add_dynamic_tools(specs, lambda request: DynamicToolResponse((InputText("here"),)))
        search = function_call("tool_search", {"query": "thing 42"})
        agent = place.agent(toolset, "responses", search, function_call("look_42", {}), "done")
        await place.run(agent)
    first, second, _ = place.script.requests
    assert "look_42" not in first.tool_names
    assert "look_42" in second.tool_names
    assert place.script.outputs()["call_2"] == "here"


async def test_a_toolset_that_is_closed_ends_the_run(place: Place) -> None:
    toolset = place.toolset(policy="never")
    agent = place.agent(toolset, "responses", TOUCH)
    await toolset.aclose()
    with pytest.raises(place.sdk.UserError, match="this toolset is closed"):
        await place.run(agent)
    assert os.listdir(place.folder) == []


# --- its sandboxes: they are containers


async def test_a_session_has_a_workspace_in_a_container(sdk: Any, tmp_path: Path) -> None:
    from agents.sandbox import (
        ExecTimeoutError,
        ExecTransportError,
        LocalSnapshotSpec,
        Manifest,
        WorkspaceArchiveReadError,
        WorkspaceReadNotFoundError,
    )
    from agents.sandbox.entries import File

    from ferrule.integrations.openai_sandbox import ContainerClient

    before = children()
    client, outside = ContainerClient(env={"KEPT": "hü"}), tmp_path / "outside"
    manifest = Manifest(entries={"a.txt": File(content=b"eins\n")})
    session = await client.create(manifest=manifest, snapshot=LocalSnapshotSpec(base_path=tmp_path / "snapshots"))
    async with session:
        script = f"cat a.txt; pwd; echo $KEPT; mkfifo pipe; ln a.txt hard; ln -s /etc far; touch {outside}; exit 3"
        done = await session.exec(script)
        assert (done.stdout.decode(), done.exit_code) == ("eins\n/workspace\nhü\n", 3)
        await session.write(Path("sub/b.bin"), io.BytesIO(bytes(range(256))))
        assert (await session.read(Path("sub/b.bin"))).read() == bytes(range(256))
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("none"))
        with pytest.raises(WorkspaceArchiveReadError):
            await session.read(Path("pipe"))
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 50", timeout=0.05)
        with pytest.raises(ExecTransportError):
            await session.exec("true", user="nobody-at-all")
        stored = client.serialize_session_state(session.state)
    await client.delete(session)
    assert not outside.exists()
    assert not await session.running()
    again = await client.resume(client.deserialize_session_state(stored))
    async with again:
        done = await again.exec("cat hard; readlink far; ls sub; test -e pipe")
        assert (done.stdout.decode(), done.exit_code) == ("eins\n/etc\nb.bin\n", 1)
    await client.delete(again)
    assert set(children()) <= set(before)


async def test_a_sandbox_agent_works_in_a_container(place: Place) -> None:
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from openai import AsyncOpenAI

    from ferrule.integrations.openai_sandbox import ContainerClient

    script = f"id -u; touch {place.folder}/outside"
    place.script.add(function_call("exec_command", {"cmd": script}), custom_tool_call("apply_patch", PATCH))
    place.script.add(function_call("exec_command", {"cmd": "cat new.txt"}), "done")
    client = AsyncOpenAI(base_url=place.script.base_url, api_key="unused")
    place.clients.append(client)
    agent = SandboxAgent("agent", model=place.sdk.OpenAIResponsesModel("scripted-model", client))
    config = place.sdk.RunConfig(sandbox=SandboxRunConfig(client=ContainerClient()))
    result = await place.sdk.Runner.run(agent, "go", run_config=config)
    assert result.final_output == "done"
    ran, _, read = place.script.outputs().values()
    assert "\n0\n" in ran
    assert "grüße" in read
    assert os.listdir(place.folder) == []


def test_the_program_of_the_page(
    sdk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", lambda question: "y" if "touch made" in question else "n")
    commands = ("touch made", "touch other")
    calls = [function_call("shell_command", {"command": command}) for command in commands]
    with ScriptedModel([calls, "They pass."]) as model:
        exec(program("OpenAI Agents SDK").replace("http://localhost:11434/v1", model.base_url), {"__name__": "program"})
        model.check()
    assert capsys.readouterr().out == "They pass.\n"
    assert os.listdir(tmp_path) == ["made"]


async def test_its_image_tool_draws_and_edits_through_a_gateway(sdk: Any, tmp_path: Path) -> None:
    from openai import AsyncOpenAI

    def draws(request: Request) -> Simple:
        said = {"prompt": request.user_text}
        return "Here it is." if request.outputs else function_call("image_generation", said)

    def image(result: Any) -> Any:
        (call,) = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
        return call

    there = new_place(tmp_path)
    with painter() as server, ScriptedModel(draws) as model:
        chosen = ("-c", f"image_generation.base_url={server.base_url}")
        with serving(there, model.base_url, *chosen) as gateway:
            async with AsyncOpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as client:

                def agent(**more: Any) -> Any:
                    tool = sdk.ImageGenerationTool({"type": "image_generation", **more})
                    return sdk.Agent(name="a", tools=[tool], model=sdk.OpenAIResponsesModel("m", client))

                drawn = await sdk.Runner.run(agent(size="64x48", quality="low"), "a red wall")
                running = sdk.Runner.run_streamed(agent(partial_images=2), "a green wall")
                events = [event.data.type async for event in running.stream_events() if hasattr(event, "data")]
                model.add(function_call("image_generation", {"prompt": "blue"}), "Here it is.")
                more = [*drawn.to_input_list(), {"role": "user", "content": "now blue"}]
                edited = await sdk.Runner.run(agent(action="edit"), more)
    assert drawn.final_output == running.final_output == edited.final_output == "Here it is."
    assert events.count("response.image_generation_call.partial_image") == 2
    red, green, blue = (base64.b64decode(image(one).result) for one in (drawn, running, edited))
    assert [colour_at(one, x, 5) for one, x in ((red, 2), (green, 2), (blue, 2), (blue, 60))] == [
        (255, 0, 0), (0, 128, 0), (0, 0, 255), (255, 0, 0),
    ]  # fmt: skip
    assert server.asked[-1].files == {"image": red}
