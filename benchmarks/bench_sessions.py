"""Sessions: a thousand in one process, the start of a sub-agent, and going on with a file of 1 GB."""

import asyncio
import contextlib
import gc
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks import peers
from benchmarks.bench_turn import Instant, noop
from benchmarks.measure import Row, bounded, medians, row
from ferrule import Agent
from ferrule.model.stream import Completed, Created, ItemDone, ModelRequest, ResponseEvent
from ferrule.protocol.content import InputText, OutputText
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, Message, make_item
from ferrule.protocol.permissions import AskForApproval, ReadOnly
from ferrule.session.lines import SessionMeta, TurnContext
from ferrule.session.rollout import Rollout, new_session_id, read_rollout
from ferrule.session.salvage import read_line

SESSIONS, CALLS = 1_000, 10
PEER_SESSIONS = 100
"""Of each peer, whose figures for one session do not depend on it; a thousand take minutes."""
FIGURES = (("seconds", "a call", "us", 1e6, 0.2), ("bytes", "memory of each", "KiB", 1 / 1024, 0.75))
"""What is measured, what it is called, its unit, and the aim: a ratio to the best peer."""
SPAWNS = 30
TREE = Path(__file__).parent.parent
GIGABYTE = 1_000_000_000
OUTPUT = 4_000
"""Bytes of a tool's output in the long file."""


async def own_session() -> object:
    """One of ours: opened, one turn of `CALLS` calls, and kept open."""
    session = await Agent(Instant(), tools=[noop]).open()
    await session.run("go")
    return session


async def many(name: str) -> dict[str, float]:
    """CPU time of a call, where all sessions run at once, and memory of each while all are kept."""
    work, count = (own_session, SESSIONS) if name == "ferrule" else (peers.agents(CALLS)[name], PEER_SESSIONS)
    kept = [await work()]  # what is loaded once is no session's
    gc.collect()
    before, started = _resident(), time.process_time()
    kept += await asyncio.gather(*(work() for _ in range(count)))
    spent = time.process_time() - started
    gc.collect()
    return {"seconds": spent / count / CALLS, "bytes": (_resident() - before) / count}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def thousand() -> list[Row]:
    """Each contestant in a process of its own."""
    figures = {name: _in_process("many", name) for name in ("ferrule", *peers.agents(CALLS))}
    ours = figures.pop("ferrule")
    rows = []
    for key, what, unit, scale, aim in FIGURES:
        others = {name: found[key] for name, found in figures.items()}
        name = f"{SESSIONS:,} sessions of {CALLS} calls, opened and run at once, {what}"
        rows.append(
            row(f"{name}, floor the best peer", ours[key], min(others.values()), aim, unit, scale, others)
            if others
            else bounded(name, ours[key], None, unit, scale)
        )
    return rows


class Asked:
    """A model that answers at once and tells when it was asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        self.asked.set()
        yield Created("r")
        yield ItemDone(make_item(Message(role="assistant", content=(OutputText("done"),))))
        yield Completed("r", None)

    async def aclose(self) -> None:
        pass


async def spawning() -> list[float]:
    """Seconds of CPU time to the first request: of a sub-agent, of a session of its own."""
    model = Asked()
    agent = Agent(model, tools=[noop])
    async with await agent.open() as parent:
        await parent.run("go")

        async def child() -> float:
            model.asked.clear()
            started = time.process_time()
            child = await parent.spawn("work")
            await model.asked.wait()
            spent = time.process_time() - started
            await child.wait()
            return spent

        async def alone() -> float:
            model.asked.clear()
            started = time.process_time()
            async with await agent.open() as session:
                running = asyncio.create_task(session.run("work"))
                await model.asked.wait()
                spent = time.process_time() - started
                await running
            return spent

        return await medians([child, alone], SPAWNS)


def spawn() -> Row:
    """A sub-agent beside a plain session."""
    ours, floor = asyncio.run(spawning())
    return row("spawn of a sub-agent to its first request, floor Agent.open to its own", ours, floor, 1.5, "ms", 1e3)


def long_file(home: str, *, compacted: bool) -> Path:
    """Write a session of 1 GB, with a compaction near its end or none at all."""
    rollout = Rollout.create(home, session_id := new_session_id())
    rollout.meta(SessionMeta(session_id, "2026-01-01T00:00:00.000Z", home))
    context = TurnContext(home, AskForApproval.NEVER, ReadOnly(), "m")
    line = b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"%b","payload":%b}\n'
    end = line % (b"event_msg", b'{"type":"token_count","usage":null}')
    with rollout.path.open("ab") as file:
        for turn in itertools.count():
            words = make_item(Message(role="user", content=(InputText(f"turn {turn}"),)))
            file.write(line % (b"turn_context", msgspec.json.encode(context)) + line % (b"response_item", words.raw))
            for call in (f"{turn}-{number}" for number in range(10)):
                for item in (
                    FunctionCall(call_id=call, name="noop", arguments="{}"),
                    FunctionCallOutput(call_id=call, output=os.urandom(OUTPUT // 2).hex()),
                ):
                    file.write(line % (b"response_item", make_item(item).raw))
                file.write(end)
            if file.tell() > GIGABYTE:
                break
    if compacted:
        rollout.turn_context(context)
        rollout.compacted([make_item(Message(role="user", content=(InputText("a summary"),)))], "a summary")
    rollout.close()
    return rollout.path


async def resumed(path: str) -> dict[str, float]:
    """Seconds of CPU time, and bytes of memory at most."""
    before, started = _peak(), time.process_time()
    stored = read_rollout(Path(path))
    assert stored.meta.id in path
    return {"seconds": time.process_time() - started, "bytes": _peak() - before}


async def line_by_line(path: str) -> dict[str, float]:
    """The least that reading all of it takes: each line, and whether it is a record."""
    started = time.process_time()
    assert all(read_line(line) is not None for line in _lines(path))
    return {"seconds": time.process_time() - started}


def _lines(path: str) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        yield from file


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def long_files() -> list[Row]:
    """Going on with a file of 1 GB."""
    rows = []
    for compacted, where, memory in ((True, "a compaction near its end", 10), (False, "no compaction", 250)):
        with tempfile.TemporaryDirectory(prefix="ferrule-bench-") as home:
            path = str(long_file(home, compacted=compacted))
            ours, floor = _in_process("resumed", path), _in_process("line_by_line", path)
        name = f"a session file of 1 GB read back, {where}"
        aim = 0.01 if compacted else 10
        rows.append(row(f"{name}, floor reading its lines", ours["seconds"], floor["seconds"], aim, "ms", 1e3))
        rows.append(bounded(f"{name}, memory", ours["bytes"] / 1024**2, memory, "MiB"))
    return rows


MEASURES = {"many": many, "resumed": resumed, "line_by_line": line_by_line}


def _in_process(measure: str, argument: str) -> dict[str, float]:
    """Take a measure in a process of its own, whose memory is nobody else's."""
    words = [sys.executable, "-m", "benchmarks.bench_sessions", measure, argument]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(TREE), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=env)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print one line a row; with a measure and its argument, take it."""
    if len(sys.argv) == 3:
        print(json.dumps(asyncio.run(MEASURES[sys.argv[1]](sys.argv[2]))))
        return
    makers: tuple[Callable[[], list[Row]], ...] = (thousand, lambda: [spawn()], long_files)
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-") as folder, contextlib.chdir(folder):
        for line in itertools.chain.from_iterable(make() for make in makers):
            print(line, flush=True)


if __name__ == "__main__":
    main()
