"""Turns: as the model server sees them, and many agents at once with the model in this process."""

import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator

from benchmarks.measure import bounded
from ferrule import Agent, tool
from ferrule.model.stream import Completed, Created, ItemDone, ModelRequest, ResponseEvent
from ferrule.protocol.content import OutputText
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import FunctionCall, Message, make_item
from ferrule.testing import ScriptedModel, function_call, message

AGENTS, TURNS = 200, 10
CALLS = 60


@tool(read_only=True)
async def noop() -> str:
    """Do nothing."""
    return "ok"


def seen_from_the_server(wire: str) -> float:
    """Median milliseconds between the end of an answer and the arrival of the next request."""
    script = [[function_call("noop", {})] for _ in range(CALLS)] + [[message("done")]]
    with ScriptedModel(script) as model, tempfile.TemporaryDirectory() as folder:
        agent = Agent("m", tools=[noop], base_url=model.base_url, wire=wire, cwd=folder)  # type: ignore[arg-type]
        agent.run_sync("go")
        return statistics.median(model.latencies_ns()[5:]) / 1e6


class Instant:
    """A model that answers at once: `TURNS` calls, then words."""

    def __init__(self) -> None:
        self._asked = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        self._asked += 1
        name = f"r{self._asked}"
        yield Created(name)
        if self._asked <= TURNS:
            call = FunctionCall(call_id=name, name="noop", arguments="{}")
            yield ItemDone(make_item(call))
        else:
            yield ItemDone(make_item(Message(role="assistant", content=(OutputText("done"),))))
        yield Completed(name, TokenUsage(1, 0, 1, 0))

    async def aclose(self) -> None:
        pass


async def many_agents(folder: str) -> tuple[float, float]:
    """Seconds for all turns of all agents, and megabytes of growth."""
    sessions = [await Agent(Instant(), tools=[noop], cwd=folder).open() for _ in range(AGENTS)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    await asyncio.gather(*(session.run("go") for session in sessions))
    spent = time.perf_counter() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for session in sessions:
        await session.aclose()
    return spent, grown


def main() -> None:
    os.environ.setdefault("HOME", tempfile.mkdtemp())
    with tempfile.TemporaryDirectory() as folder:
        runs = [asyncio.run(many_agents(folder)) for _ in range(3)]
    spent, grown = statistics.median(run[0] for run in runs), max(run[1] for run in runs)
    print(bounded(f"{AGENTS} agents x {TURNS} turns", spent, 0.3, "s"))
    print(bounded("  a turn", spent / AGENTS / TURNS * 1e6, 150, "us"))
    print(bounded("  growth", grown, 10, "MB"))
    for wire in ("responses", "chat"):
        print(bounded(f"no-op tool turn seen from the server, {wire}", seen_from_the_server(wire), 3, "ms"))


if __name__ == "__main__":
    main()
