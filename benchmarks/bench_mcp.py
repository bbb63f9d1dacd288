"""MCP over stdio: one call, a hundred at once, and the start of fifty servers. The floor is the SDK's own client."""

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack

from benchmarks import mcp_echo_server
from benchmarks.headless import STUB
from benchmarks.measure import Row, in_turns, row
from ferrule import Agent
from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.protocol.items import FunctionCall
from ferrule.testing import ScriptedModel
from mcp import Client, StdioServerParameters

SERVER = mcp_echo_server.__file__
ROUNDS, CALLS = 60, 100


def agent(folder: str, servers: dict[str, object], **more: object) -> Agent:
    return Agent("m", tools=[], cwd=folder, mcp_config={"mcpServers": servers}, **more)  # type: ignore[arg-type]


async def dispatched(dispatcher: Dispatcher, number: int) -> None:
    """A call on the whole path: routed, validated, approved, run, made an item."""
    view = FunctionCall(call_id=f"c{number}", name="mcp__echo__echo", arguments='{"text":"hello"}')
    answer = await dispatcher.respond(view)
    assert answer is not None
    assert b"ECHO: hello" in answer.raw


async def round_trips(folder: str) -> list[Row]:
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
            dispatcher = session.toolset.dispatcher()

            async def ours() -> None:
                await dispatched(dispatcher, 0)

            async def floor() -> None:
                result = await client.call_tool("echo", {"text": "hello"})
                assert result.content[0].text == "ECHO: hello"  # type: ignore[union-attr]

            async def ours_together() -> None:
                await asyncio.gather(*(dispatched(dispatcher, i) for i in range(CALLS)))

            async def floor_together() -> None:
                await asyncio.gather(*(floor() for _ in range(CALLS)))

            least, one = await in_turns([floor, ours], ROUNDS, 10)
            least_of_many, many = await in_turns([floor_together, ours_together], ROUNDS // 4)
    return [
        row("MCP call over stdio, whole dispatch", one, least, 1.15),
        row(f"{CALLS} MCP calls at once", many, least_of_many, 1.15, "ms", 1e3),
    ]


async def start(folder: str, servers: dict[str, object]) -> float:
    """Seconds until every server is ready."""
    with ScriptedModel([]) as model:
        started = time.perf_counter()
        async with await agent(folder, servers, base_url=model.base_url).open() as session:
            while len([name for _, name in session.toolset.current()[1] if name.endswith("__echo")]) < len(servers):
                await session.toolset.settled()
            return time.perf_counter() - started


async def starts(folder: str) -> Row:
    """Fifty servers of which each sleeps a second, beside one."""

    def sleepy(count: int) -> dict[str, object]:
        stub = {"command": sys.executable, "args": ["-S", "-E", str(STUB), "slow=1"], "enabled_tools": ["echo"]}
        return {f"s{i}": stub for i in range(count)}

    await start(folder, sleepy(1))  # imports the SDK
    one, fifty = await start(folder, sleepy(1)), await start(folder, sleepy(50))
    return row("start of 50 servers that need 1 s, floor that of one", fifty, one, 2.5, "s", 1)


def main() -> None:
    """Print one line a row."""
    with tempfile.TemporaryDirectory() as folder:
        for line in (*asyncio.run(round_trips(folder)), asyncio.run(starts(folder))):
            print(line, flush=True)


if __name__ == "__main__":
    main()
