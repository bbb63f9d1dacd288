"""Other packages doing the same work, where they are installed (`scripts/bench --peers`).

They are imported only when they are measured and typed as `Any`: the checks run without them.
"""

import importlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.measure import is_installed

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")

Call = Callable[[], Awaitable[object]]
"""One call of the tool `add`, from JSON arguments to a result."""

Turns = Callable[[], Awaitable[object]]
"""One agent's run of some turns with the tool `noop`, the model in process."""


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def noop() -> str:
    """Do nothing."""
    return "ok"


async def dispatches(arguments: str) -> dict[str, Call]:
    """Each installed peer's way to run `add` with these arguments."""
    makers = {"agents": openai_agents_call, "pydantic_ai": pydantic_ai_call}
    return {NAMES[module]: await make(arguments) for module, make in makers.items() if is_installed(module)}


def agents(turns: int) -> dict[str, Turns]:
    """Each installed peer's agent, which calls `noop` that many times and then says `done`."""
    makers = {"agents": openai_agents_turns, "pydantic_ai": pydantic_ai_turns, "langgraph": langgraph_turns}
    return {NAMES[module]: make(turns) for module, make in makers.items() if is_installed(module)}


def tool_makers() -> dict[str, Callable[[Callable[..., object]], object]]:
    """What makes a tool of a function."""
    makers = (("agents", "function_tool"), ("pydantic_ai", "Tool"))
    return {NAMES[name]: getattr(importlib.import_module(name), maker) for name, maker in makers if is_installed(name)}


NAMES = {"agents": "openai-agents", "pydantic_ai": "pydantic-ai", "langgraph": "langgraph"}
"""Module -> how the package is called."""


async def openai_agents_call(arguments: str) -> Call:
    """`FunctionTool.on_invoke_tool`, the way its runner calls it."""
    sdk: Any = importlib.import_module("agents")
    context: Any = importlib.import_module("agents.tool_context")
    tool = sdk.function_tool(add)

    async def call() -> object:
        given = context.ToolContext(None, tool_name="add", tool_call_id="call_1", tool_arguments=arguments)
        return await tool.on_invoke_tool(given, arguments)

    assert await call() == 7
    return call


async def pydantic_ai_call(arguments: str) -> Call:
    """A bare `FunctionToolset`: its validator, then `call_tool`."""
    package: Any = importlib.import_module("pydantic_ai")
    models: Any = importlib.import_module("pydantic_ai.models.test")
    usage: Any = importlib.import_module("pydantic_ai.usage")
    toolsets: Any = importlib.import_module("pydantic_ai.toolsets")
    toolset = toolsets.FunctionToolset([add])
    context = package.RunContext(deps=None, model=models.TestModel(), usage=usage.RunUsage())
    tool = (await toolset.get_tools(context))["add"]

    async def call() -> object:
        return await toolset.call_tool("add", tool.args_validator.validate_json(arguments), context, tool)

    assert await call() == 7
    return call


def openai_agents_turns(turns: int) -> Turns:
    """`Runner.run` with a `Model` that answers at once."""
    sdk: Any = importlib.import_module("agents")
    types: Any = importlib.import_module("openai.types.responses")
    sdk.set_tracing_disabled(True)

    class Instant(sdk.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            self.asked = 0

        async def get_response(self, *_: object, **__: object) -> object:
            self.asked += 1
            name = f"call_{self.asked}"
            if self.asked <= turns:
                item = types.ResponseFunctionToolCall(
                    call_id=name, name="noop", arguments="{}", type="function_call", id=name
                )
            else:
                part = types.ResponseOutputText(text="done", type="output_text", annotations=[])
                item = types.ResponseOutputMessage(
                    id=name, type="message", role="assistant", status="completed", content=[part]
                )
            return sdk.ModelResponse(output=[item], usage=sdk.Usage(), response_id=name)

        def stream_response(self, *_: object, **__: object) -> object:
            raise NotImplementedError

    tool = sdk.function_tool(noop)

    async def run() -> object:
        agent = sdk.Agent(name="a", model=Instant(), tools=[tool])
        return await sdk.Runner.run(agent, "go", max_turns=turns + 1)

    return run


def pydantic_ai_turns(turns: int) -> Turns:
    """`Agent.run` with a `FunctionModel`."""
    package: Any = importlib.import_module("pydantic_ai")
    functions: Any = importlib.import_module("pydantic_ai.models.function")
    messages: Any = importlib.import_module("pydantic_ai.messages")

    async def answer(history: list[object], info: object) -> object:
        asked = (len(history) + 1) // 2
        part = messages.TextPart("done") if asked > turns else messages.ToolCallPart("noop", {}, f"call_{asked}")
        return messages.ModelResponse(parts=[part])

    async def run() -> object:
        agent = package.Agent(functions.FunctionModel(answer), tools=[noop])
        return await agent.run("go")

    return run


def langgraph_turns(turns: int) -> Turns:
    """A prebuilt ReAct agent over a chat model that answers at once."""
    core: Any = importlib.import_module("langchain_core.language_models.chat_models")
    messages: Any = importlib.import_module("langchain_core.messages")
    outputs: Any = importlib.import_module("langchain_core.outputs")
    tools: Any = importlib.import_module("langchain_core.tools")
    prebuilt: Any = importlib.import_module("langgraph.prebuilt")

    class Instant(core.BaseChatModel):  # type: ignore[misc]
        @property
        def _llm_type(self) -> str:
            return "instant"

        def bind_tools(self, tools: object, **_: object) -> object:
            return self

        def _generate(self, history: list[object], *_: object, **__: object) -> object:
            asked = sum(isinstance(message, messages.AIMessage) for message in history)
            calls = [] if asked >= turns else [{"name": "noop", "args": {}, "id": f"call_{asked}"}]
            message = messages.AIMessage("" if calls else "done", tool_calls=calls)
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=message)])

        async def _agenerate(self, history: list[object], *_: object, **__: object) -> object:
            return self._generate(history)

    tool = tools.tool(noop)

    async def run() -> object:
        agent = prebuilt.create_react_agent(Instant(), [tool])
        state = await agent.ainvoke({"messages": [("user", "go")]}, {"recursion_limit": 2 * turns + 2})
        assert state["messages"][-1].content == "done"
        return agent, state

    return run
