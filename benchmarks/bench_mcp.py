"""MCP over stdio: one call, a hundred at once, and the start of fifty servers. The floor is the SDK's own client."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.measure import bounded, in_turns, row
from ferrule import Agent
from ferrule.protocol.items import FunctionCall
from ferrule.session.session import Session
from ferrule.testing import ScriptedModel, function_call, message
from mcp import Client, StdioServerParameters

SERVER = str(Path(__file__).with_name("mcp_echo_server.py"))
STUB = str(Path(__file__).parents[1] / "tests" / "mcp" / "stub.py")
ROUNDS, CALLS = 60, 100
TURNS = 40


def agent(folder: str, servers: dict[str, object], **more: object) -> Agent:
    return Agent("m", tools=[], cwd=folder, mcp_config={"mcpServers": servers}, **more)  # type: ignore[arg-type]


async def dispatched(session: Session, number: int) -> None:
    """A call on the whole path: routed, validated, approved, run, made an item."""
    view = FunctionCall(call_id=f"c{number}", name="mcp__echo__echo", arguments='{"text":"hello"}')
    answer = await session.toolset.dispatcher().respond(view)
    assert answer is not None
    assert b"ECHO: hello" in answer.raw


async def round_trips(folder: str) -> None:
    """Our dispatch beside the SDK's client, each with a server of its own."""
    command = {"command": sys.executable, "args": [SERVER], "approval": "allow", "supports_parallel_tool_calls": True}
    async with AsyncExitStack() as stack:
        with ScriptedModel([]) as model:
            session = await stack.enter_async_context(
                await agent(folder, {"echo": command}, base_url=model.base_url).open()
            )
            client = await stack.enter_async_context(
                Client(StdioServerParameters(command=sys.executable, args=[SERVER]))
            )
            await client.list_tools()
            while not session.toolset.current()[1].handler("mcp__echo__echo"):
                await session.toolset.settled()

            async def ours() -> None:
                await dispatched(session, 0)

            async def floor() -> None:
                result = await client.call_tool("echo", {"text": "hello"})
                assert result.content[0].text == "ECHO: hello"  # type: ignore[union-attr]

            async def ours_together() -> None:
                await asyncio.gather(*(dispatched(session, i) for i in range(CALLS)))

            async def floor_together() -> None:
                await asyncio.gather(*(floor() for _ in range(CALLS)))

            one = await in_turns([ours, floor], ROUNDS, 10)
            many = await in_turns([ours_together, floor_together], ROUNDS // 4)
    print(row("MCP call over stdio, whole dispatch", *one, 1.15))
    print(row(f"{CALLS} MCP calls at once", *many, 1.15, "ms", 1e3))


async def start(folder: str, servers: dict[str, object]) -> float:
    """Seconds until every server is ready."""
    with ScriptedModel([]) as model:
        started = time.perf_counter()
        async with await agent(folder, servers, base_url=model.base_url).open() as session:
            while len([name for _, name in session.toolset.current()[1] if name.endswith("__echo")]) < len(servers):
                await session.toolset.settled()
            return time.perf_counter() - started


async def starts(folder: str) -> None:
    """Fifty servers of which each sleeps a second, beside one."""

    def sleepy(count: int) -> dict[str, object]:
        stub = {"command": sys.executable, "args": ["-S", "-E", STUB, "slow=1"], "enabled_tools": ["echo"]}
        return {f"s{i}": stub for i in range(count)}

    await start(folder, sleepy(1))  # imports the SDK
    one, fifty = await start(folder, sleepy(1)), await start(folder, sleepy(50))
    print(row("start of 50 servers that need 1 s, beside that of one", fifty, one, 2.5, "s", 1))


def seen_from_the_server(folder: str) -> float:
    """Median milliseconds between the end of an answer and the next request, with an MCP call between them."""
    script = [[function_call("mcp__echo__echo", {"text": "hello"})] for _ in range(TURNS)] + [[message("done")]]
    command = {"command": sys.executable, "args": ["-S", "-E", STUB]}
    with ScriptedModel(script) as model:
        agent(folder, {"echo": command}, base_url=model.base_url).run_sync("go")
        return statistics.median(model.latencies_ns()[5:]) / 1e6


def main() -> None:
    os.environ.setdefault("HOME", tempfile.mkdtemp())
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(round_trips(folder))
        asyncio.run(starts(folder))
        print(bounded("MCP turn seen from the model server", seen_from_the_server(folder), 5, "ms"))


if __name__ == "__main__":
    main()
