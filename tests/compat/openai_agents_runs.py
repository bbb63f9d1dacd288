"""openai-agents against the scripted model, over both wires. Development only: `scripts/compat` installs the package
and runs this file; warnings are errors here too, so it must read our streams without complaint."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from openai import AsyncOpenAI

from ferrule.testing import (
    ScriptedModel,
    apply_patch_call,
    custom_tool_call,
    function_call,
    message,
    reasoning,
    shell_call,
    step,
)
from ferrule.testing.request import Wire

SDK: Any = importlib.import_module("agents")
WIRES: list[Wire] = ["responses", "chat"]
MODELS = {"responses": SDK.OpenAIResponsesModel, "chat": SDK.OpenAIChatCompletionsModel}
MakeAgent = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ScriptedModel]:
    with ScriptedModel() as running:
        yield running
        running.check()


@pytest.fixture
async def agent(server: ScriptedModel) -> AsyncIterator[MakeAgent]:
    """Makes agents that ask the server over a wire and have the given tools."""
    SDK.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=server.base_url, api_key="unused", max_retries=0) as client:

        def make(wire: Wire, tools: list[Any], **fields: Any) -> Any:
            return SDK.Agent(name="a", model=MODELS[wire](model="m", openai_client=client), tools=tools, **fields)

        yield make


async def run(agent: Any, *, stream: bool) -> Any:
    """The result, as soon as the run has ended."""
    if not stream:
        return await SDK.Runner.run(agent, "go")
    running = SDK.Runner.run_streamed(agent, "go")
    async for _ in running.stream_events():
        pass
    return running


def word_count(text: str) -> int:
    """Count words."""
    return len(text.split())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_parallel_calls_then_words(server: ScriptedModel, agent: MakeAgent, wire: Wire, stream: bool) -> None:
    calls = [function_call("word_count", {"text": text}) for text in ("one", "one two", "grüße 🙂 three")]
    server.add(step(reasoning("Count."), message("Let me count."), *calls), step("six", expect="3"))
    result = await run(agent(wire, [SDK.function_tool(word_count)]), stream=stream)
    assert result.final_output == "six"
    assert list(server.outputs().values()) == ["1", "2", "3"]
    assert {request.wire for request in server.requests} == {wire}


@pytest.mark.parametrize("stream", [False, True])
async def test_freeform_shell_and_patch(server: ScriptedModel, agent: MakeAgent, stream: bool) -> None:
    """The native tools of the Responses API."""
    seen: list[str] = []

    async def freeform(_: object, text: str) -> str:
        seen.append(text)
        return "upper: " + text.upper()

    def shell(request: Any) -> str:
        seen.extend(request.data.action.commands)
        return "two files"

    def edit(operation: Any) -> str:
        seen.append(f"{operation.type} {operation.path} {operation.diff}")
        return "Done!"

    server.add(
        step(custom_tool_call("shout", "hello"), shell_call(["ls", "ls -l"])),
        step(apply_patch_call("update_file", "a.txt", "@@\n-a\n+b\n"), expect="upper: HELLO"),
        step("finished", expect="Done!"),
    )
    editor = SimpleNamespace(create_file=edit, update_file=edit, delete_file=edit)
    tools = [
        SDK.CustomTool(name="shout", description="Shout.", on_invoke_tool=freeform),
        SDK.ShellTool(executor=shell),
        SDK.ApplyPatchTool(editor=editor),
    ]
    result = await run(agent("responses", tools), stream=stream)
    assert result.final_output == "finished"
    assert seen == ["hello", "ls", "ls -l", "update_file a.txt @@\n-a\n+b\n"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_handoff_and_typed_output(server: ScriptedModel, agent: MakeAgent, wire: Wire, stream: bool) -> None:
    pydantic: Any = importlib.import_module("pydantic")
    answer = pydantic.create_model("Answer", words=(int, ...))
    specialist = agent(wire, [SDK.function_tool(word_count)], output_type=answer)
    specialist.name = "counter"
    server.add(function_call("transfer_to_counter"), function_call("word_count", {"text": "a b"}), step('{"words": 2}'))
    result = await run(agent(wire, [], handoffs=[specialist]), stream=stream)
    assert result.final_output.words == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_many_at_once(server: ScriptedModel, agent: MakeAgent, wire: Wire) -> None:
    """Conversations that overlap each read their own answers."""
    for number in range(8):
        call = function_call("word_count", {"text": "x " * number})
        server.play(call, step(f"said {number}", expect=str(number)), when=f"number {number};")
    runner = agent(wire, [SDK.function_tool(word_count)])
    results = await asyncio.gather(*(SDK.Runner.run(runner, f"number {number};") for number in range(8)))
    assert [result.final_output for result in results] == [f"said {number}" for number in range(8)]
