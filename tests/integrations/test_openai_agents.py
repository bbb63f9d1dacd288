"""A toolset in the OpenAI Agents SDK: the real SDK against a scripted model, over both wires."""

import asyncio
import base64
import io
import os
from pathlib import Path
from typing import Any, cast

import pytest

from ferrule import tool
from ferrule.mcp import create_mcp_tools
from ferrule.protocol.content import InputText
from ferrule.protocol.payload import NO_SCREENSHOT
from ferrule.testing import ScriptedModel, apply_patch_call, custom_tool_call, function_call, shell_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.gateway.served import new_place, serving
from tests.image_generation.painter import colour_at, painter
from tests.integrations.agents_sdk import PATCH, PNG, TOUCH, Place, decide, outputs
from tests.integrations.frameworks import program
from tests.mcp.stub import server
from tests.processes import children, until


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


async def test_parallel_calls_run_beside_each_other(place: Place) -> None:
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.01; done"
    calls = [function_call("shell_command", {"command": meet.format(*names)}) for names in (("a", "b"), ("b", "a"))]
    async with place.toolset(policy="never") as toolset:
        await place.run(place.agent(toolset, "responses", calls, "done"))
    assert all(output.startswith("Exit code: 0") for output in place.script.outputs().values())


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
