"""Searching 2,000 deferred tools, as a model does, and what such tools add to a request."""

import asyncio
import json
import random
import tempfile
import time

from benchmarks.measure import bounded, in_turns
from ferrule import Toolset
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.tools.registry import ToolRegistryBuilder

TOOLS = 2_000
ROUNDS = 100
WORDS = [
    *("create", "delete", "list", "update", "deploy", "query", "event", "calendar", "invoice", "customer", "contact"),
    *("repository", "branch", "commit", "message", "channel", "file", "folder", "document", "server", "database"),
    *("table", "row", "email", "ticket", "issue", "project", "task"),
]
QUERIES = ("create calendar event", "delete the invoice of a customer from the database", "branch", "proj")


class Many:
    """The tools of twenty servers."""

    revision = 0

    def __init__(self) -> None:
        rng = random.Random(7)
        self._specs = [_spec(number, rng) for number in range(TOOLS)]

    def register(self, builder: ToolRegistryBuilder) -> None:
        for spec in self._specs:
            builder.push_deferrable(spec, False)


def _spec(number: int, rng: random.Random) -> ResponsesApiTool:
    fields = rng.sample(WORDS, 4)
    return ResponsesApiTool(
        name=f"mcp__server{number % 20}__{rng.choice(WORDS)}_{rng.choice(WORDS)}_{number}",
        description=" ".join(rng.choices(WORDS, k=30)),
        parameters=JsonSchema({"type": "object", "properties": {name: {"type": "string"} for name in fields}}),
    )


async def measure(cwd: str) -> None:
    tools = Toolset.for_model("gpt-5.5", cwd=cwd, sandbox="danger-full-access", tools=["update_plan"])
    async with tools:
        tools.add_source(Many())
        numbers = iter(range(10**9))

        async def search() -> None:
            arguments = {"query": QUERIES[next(numbers) % len(QUERIES)]}
            call = {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": arguments}
            (answer,) = await tools.run([call])
            assert answer["tools"], answer

        started = time.perf_counter()
        await search()
        first = time.perf_counter() - started
        (warm,) = await in_turns([search], ROUNDS)
        listed = len(json.dumps(tools.specs("chat")))
    print(bounded("tool_search, 2,000 tools, warm", warm, 5, "ms", 1e3), flush=True)
    print(bounded("tool_search, 2,000 tools, the first one", first, None, "ms", 1e3), flush=True)
    print(bounded("tools of a request, 2,000 deferred, four searches", listed, 64, "KiB", 2**-10), flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as cwd:
        asyncio.run(measure(cwd))


if __name__ == "__main__":
    main()
