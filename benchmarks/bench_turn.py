"""Turns: many agents at once with the model in this process; one agent as its model server sees it, from the end of an
answer to the arrival of the next request."""

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks import peers
from benchmarks.headless import ECHO, Headless, contestants, mcp_echo, no_op, one_line_patch, run_true
from benchmarks.measure import Row, Work, bounded, in_turns, row
from ferrule import Agent, tool
from ferrule.model.stream import Completed, Created, ItemDone, ModelRequest, ResponseEvent
from ferrule.protocol.content import OutputText
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, Message, ResponseItem, make_item
from ferrule.testing import ScriptedModel, message

AGENTS, TURNS = 200, 10
CALLS = 20
SESSIONS = 3
LONG = 10_000
ROUNDS = 30


@tool(read_only=True)
async def noop() -> str:
    """Do nothing."""
    return "ok"


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
    """Seconds of CPU time a turn, and megabytes of growth."""
    sessions = [await Agent(Instant(), tools=[noop], cwd=folder).open() for _ in range(AGENTS)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    await asyncio.gather(*(session.run("go") for session in sessions))
    spent = time.process_time() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for session in sessions:
        await session.aclose()
    return spent / AGENTS / TURNS, grown


async def peer_agents() -> dict[str, float]:
    """Seconds of CPU time a turn of one agent."""
    found = peers.agents(TURNS)
    works: list[Work] = [*found.values()]
    figures = await in_turns(works, 5, 1, time.process_time)
    return {name: figure / TURNS for name, figure in zip(found, figures, strict=True)}


def in_process() -> list[Row]:
    """The rows of many agents."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [asyncio.run(many_agents(folder)) for _ in range(4)]
    spent, grown = statistics.median(run[0] for run in runs[1:]), max(run[1] for run in runs)
    others = asyncio.run(peer_agents())
    return [
        bounded(f"{AGENTS} agents x {TURNS} turns, model in process, a turn", spent, 150, "us", 1e6, peers=others),
        bounded(f"{AGENTS} agents x {TURNS} turns, growth", grown, 10, "MB"),
    ]


def session(contestant: Headless, cwd: Path) -> list[list[float]]:
    """Milliseconds of each turn of one session: no-ops, commands, patches, MCP calls. The first of each kind is left
    out."""
    (cwd / "small.txt").write_text("line 0\n")
    calls = [no_op() for _ in range(CALLS)]
    calls += [run_true() for _ in range(CALLS)]
    calls += [one_line_patch(number) for number in range(CALLS)]
    calls += [mcp_echo() for _ in range(CALLS)]
    with ScriptedModel([*([call] for call in calls), [message("done")]]) as model:
        assert contestant.start(model, cwd, [ECHO]).wait() == 0, contestant.name
        model.check()
        outputs = list(model.outputs().values())
        times = [latency / 1e6 for latency in model.latencies_ns()]
    assert "hi" in outputs[-1], outputs[-1]
    assert "code 0" in outputs[CALLS] and (cwd / "small.txt").read_text() == f"line {CALLS}\n", outputs[CALLS]
    return [times[kind * CALLS + 1 : (kind + 1) * CALLS] for kind in range(4)]


def seen_from_the_server() -> list[Row]:
    """The rows of headless programs, whose sessions alternate."""
    with contestants() as (programs, cwd):
        runs = [(program.name, session(program, cwd)) for _ in range(SESSIONS) for program in programs]
    names = ("no-op turn", "turn with a confined `true`", "turn with a one-line patch", "turn with an MCP call")
    rows = []
    for kind, (name, aim) in enumerate(zip(names, (3, 12, 5, 5), strict=True)):
        times: dict[str, list[float]] = {}
        for program, kinds in runs:
            times.setdefault(program, []).extend(kinds[kind])
        figures = {program: statistics.median(spent) for program, spent in times.items()}
        ours = figures.pop("ferrule")
        rows.append(bounded(f"{name}, seen from the server", ours, aim, "ms", peers=figures))
    return rows


def chat_turn() -> Row:
    """A no-op turn on the other wire, the agent in the server's process."""
    with ScriptedModel([*([no_op()] for _ in range(CALLS * 2)), [message("done")]]) as model:
        with tempfile.TemporaryDirectory() as folder:
            Agent("m", tools=["update_plan"], base_url=model.base_url, wire="chat", cwd=folder).run_sync("go")
        spent = statistics.median(model.latencies_ns()[5:]) / 1e6
    return bounded("no-op turn, seen from the server, chat wire, in process", spent, 3, "ms")


def history(count: int) -> list[ResponseItem]:
    """Calls and their answers."""
    pairs = [
        (
            make_item(FunctionCall(call_id=f"h{number}", name="update_plan", arguments="{}")),
            make_item(FunctionCallOutput(call_id=f"h{number}", output="Plan updated")),
        )
        for number in range(count // 2)
    ]
    return [item for pair in pairs for item in pair]


Ask = Callable[[], Awaitable[object]]
"""Makes two requests, one after the other."""


class Line:
    """A scripted server, and somebody who asks it twice a round: what passes between its first answer and the second
    request is measured."""

    def __init__(self, server: ScriptedModel, ask: Ask) -> None:
        self._server = server
        self.ask = ask

    def milliseconds(self) -> list[float]:
        """The time of each round but the first ones."""
        return [spent / 1e6 for spent in self._server.latencies_ns()[::2]][5:]


async def session_line(count: int, ends: AsyncExitStack) -> Line:
    """A session whose history has `count` items, the agent in the server's process."""
    server = ends.enter_context(ScriptedModel([[no_op()], [message("done")]] * ROUNDS))
    folder = ends.enter_context(tempfile.TemporaryDirectory())
    agent = Agent("m", tools=["update_plan"], base_url=server.base_url, wire="responses", cwd=folder)
    session = await ends.enter_async_context(await agent.open())
    session.history.extend(history(count))
    return Line(server, lambda: session.run("go"))


async def bare_line(count: int, ends: AsyncExitStack) -> Line:
    """A client that posts the same bytes and does nothing else."""
    import httpx2

    server = ends.enter_context(ScriptedModel([message("done")] * ROUNDS * 2))
    client = await ends.enter_async_context(httpx2.AsyncClient(trust_env=False))
    body = b'{"model":"m","stream":true,"input":[%b]}' % b",".join(item.raw for item in history(count))

    async def ask() -> None:
        for _ in range(2):
            await client.post(f"{server.base_url}/responses", content=body)

    return Line(server, ask)


async def late_and_early() -> tuple[float, float]:
    """A turn late in a session without what its bytes cost a bare client on the way, and an early one. They take
    turns, so what else runs on the machine meets all four alike."""
    async with AsyncExitStack() as ends:
        lines = [await make(count, ends) for make in (session_line, bare_line) for count in (LONG, 10)]
        for _ in range(ROUNDS):
            for line in lines:
                await line.ask()
        late, early, late_bytes, early_bytes = (line.milliseconds() for line in lines)
    own = [turn - (sent - few) for turn, sent, few in zip(late, late_bytes, early_bytes, strict=True)]
    return statistics.median(own), statistics.median(early)


def long_histories() -> Row:
    """What a long history costs beside its transport."""
    late, early = asyncio.run(late_and_early())
    name = f"no-op turn at {LONG:,} items of history without the transport of its bytes, floor one at 10"
    return row(name, late, early, 1.2, "ms", 1)


def main() -> None:
    """Print one line a row."""
    for line in [*in_process(), *seen_from_the_server(), chat_turn(), long_histories()]:
        print(line, flush=True)


if __name__ == "__main__":
    main()
