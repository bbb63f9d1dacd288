"""The Messages wire beside our Responses wire, in one run: an event of a stream, a no-op turn; and how much of a long
conversation is read from the server's cache."""

import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from os.path import commonprefix

from benchmarks.bench_sse import DELTAS, ours, server_of
from benchmarks.headless import no_op
from benchmarks.measure import Row, at_least, in_turns, row
from ferrule import Agent
from ferrule.protocol.specs import Wire
from ferrule.testing import Request, ScriptedModel, message, reasoning

WIRES: tuple[Wire, Wire] = ("messages", "responses")
AIM = 1.3
ROUNDS = 5
TURNS = 60
CACHED_TURNS = 40
AIM_CACHED = 0.95
TOOLS = ["shell_command", "apply_patch", "update_plan", "view_image"]


def an_event() -> Row:
    """A delta, read by the reader's own CPU time."""
    with server_of(WIRES[0], DELTAS, 100) as here, server_of(WIRES[1], DELTAS, 100) as there:
        works = [partial(ours, port, wire) for port, wire in zip((here, there), WIRES, strict=True)]
        own, floor = asyncio.run(in_turns(works, ROUNDS, clock=time.process_time))
    return row("sse messages, batched, an event, floor ours over responses", own / DELTAS, floor / DELTAS, AIM)


async def _turns() -> tuple[float, float]:
    async with AsyncExitStack() as ends:
        servers, sessions = [], []
        for wire in WIRES:
            server = ends.enter_context(ScriptedModel([[no_op()], [message("done")]] * TURNS))
            folder = ends.enter_context(tempfile.TemporaryDirectory())
            agent = Agent("m", tools=["update_plan"], base_url=server.base_url, wire=wire, cwd=folder)
            servers.append(server)
            sessions.append(await ends.enter_async_context(await agent.open()))
        for _ in range(TURNS):
            for session in sessions:
                await session.run("go")
        own, floor = (statistics.median(server.latencies_ns()[::2][5:]) / 1e6 for server in servers)
    return own, floor


def a_turn() -> Row:
    """A no-op turn, seen from the server, the agents in its process; both take turns."""
    own, floor = asyncio.run(_turns())
    return row("no-op turn, seen from the server, messages, floor responses", own, floor, AIM, "ms", 1)


def cached_share(requests: list[Request]) -> float:
    """The part of the requests, in percent, that stays byte for byte the same from one to the next."""
    pairs = list(pairwise(request.raw for request in requests))
    return 100 * sum(len(commonprefix(pair)) for pair in pairs) / sum(len(now) for _, now in pairs)  # noqa: RUF071 - no paths


def the_cache() -> Row:
    """A conversation of calls, each after a thought, with the usual tools and instructions."""
    script = [[reasoning(text="Hm", encrypted_content="c2ln"), no_op()] for _ in range(CACHED_TURNS - 1)]
    with ScriptedModel([*script, [message("done")]]) as server, tempfile.TemporaryDirectory() as folder:
        Agent(
            "claude-opus-4-6",
            base_url=server.base_url,
            wire="messages",
            cwd=folder,
            tools=["shell_command", "apply_patch", "update_plan", "view_image"],
        ).run_sync("go")
        share = cached_share(server.requests)
    return at_least(f"read from the cache in {CACHED_TURNS} turns, floor all", share, 100, AIM_CACHED, "%")


def main() -> None:
    """Print one line a row."""
    for line in (an_event(), a_turn(), the_cache()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
