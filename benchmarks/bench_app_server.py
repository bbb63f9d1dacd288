"""The app-server: one turn beside 99 threads that stream, and the memory of a thread."""

import asyncio
import gc
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.app_server.client import Client

from benchmarks.headless import environment
from benchmarks.measure import Row, medians, row
from benchmarks.upstream import END, event, upstream
from ferrule.config import Sources, load
from ferrule.session.opening import open_session

THREADS = 100
DELTAS_A_SECOND = 5
ROUNDS = 40
TREE = Path(__file__).parent.parent


class Server(Client):
    """A server as a program, and its client."""

    def __init__(self, program: asyncio.subprocess.Process) -> None:
        assert program.stdin is not None and program.stdout is not None
        super().__init__(self._write, program.stdout.readline)
        self.program = program
        self._input = program.stdin

    async def _write(self, line: bytes) -> None:
        self._input.write(line)
        await self._input.drain()

    def resident(self) -> int:
        """Bytes of memory of its process."""
        return _resident(self.program.pid)

    async def say_to(self, thread: str) -> float:
        """Run a turn; return the seconds until its end is told."""
        self.said.clear()
        started = time.perf_counter()
        await self.ask("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
        await self.notified("turn/completed", threadId=thread)
        return time.perf_counter() - started

    async def arrived(self) -> list[dict[str, Any]]:
        """Return what has been told and not been heard."""
        while True:
            try:
                async with asyncio.timeout(0.01):
                    await self.next()
            except TimeoutError:
                return self.said


@asynccontextmanager
async def served(base_url: str) -> AsyncIterator[Server]:
    """A server whose threads ask the model at this address."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-bench-") as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        program = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "ferrule"), "app-server", *flags(base_url), "-C", str(work),
            env=environment(home) | {"FERRULE_HOME": str(home)},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26,
        )  # fmt: skip
        server = Server(program)
        try:
            await server.greet()
            yield server
        finally:
            server._input.close()
            await program.wait()


def flags(base_url: str) -> list[str]:
    """The flags of a server; commands run without a sandbox, whose processes would be measured with it."""
    return ["--base-url", base_url, "--wire", "chat", "-s", "danger-full-access"]


async def latency(base_url: str) -> list[float]:
    """Seconds of a turn: beside 99 that stream, alone."""
    async with served(base_url) as server:
        thread = await server.start(model="quick")
        for _ in range(5):
            await server.say_to(thread)
        [alone] = await medians([lambda: server.say_to(thread)], ROUNDS, pause=0.05)
        for _ in range(1, THREADS):
            say = [{"type": "text", "text": "go"}]
            await server.call("turn/start", threadId=await server.start(model="stream"), input=say)
        [beside] = await medians([lambda: server.say_to(thread)], ROUNDS, pause=0.05)
        server.said.clear()
        await asyncio.sleep(1)
        deltas = sum([message["method"] == "item/agentMessage/delta" for message in await server.arrived()])
        assert deltas > 0.5 * DELTAS_A_SECOND * (THREADS - 1), f"only {deltas} deltas in a second"
    return [beside, alone]


async def memory(base_url: str) -> float:
    """Bytes of the server's memory for each thread that has had a turn."""
    async with served(base_url) as server:
        for _ in range(10):  # what is loaded once is no thread's
            await server.say_to(await server.start(model="quick"))
        before = server.resident()
        for _ in range(THREADS):
            await server.say_to(await server.start(model="quick"))
        return (server.resident() - before) / THREADS


async def session_memory(base_url: str) -> float:
    """Bytes of memory for each session that a program holds open, with the same settings."""
    keys = {"model": "quick", "sandbox_mode": "danger-full-access"}
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-") as folder:
        sources = Sources(cwd=folder, defaults=keys, base_url=base_url, wire="chat")
        async with AsyncExitStack() as opened:

            async def one() -> None:
                session = await open_session(load(sources, {"FERRULE_HOME": folder}).settings, Quiet())
                opened.push_async_callback(session.aclose)
                await session.run("go")

            for _ in range(10):
                await one()
            gc.collect()
            before = _resident(os.getpid())
            for _ in range(THREADS):
                await one()
            return (_resident(os.getpid()) - before) / THREADS


class Quiet:
    """A front end that shows nothing."""

    can_answer = True

    def on_event(self, event: object) -> None:
        """Show nothing."""


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def _in_process(base_url: str) -> float:
    """The memory of sessions, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.bench_app_server", base_url]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(TREE), os.environ.get("PYTHONPATH", "")))}
    program = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, env=env)
    said, _ = await program.communicate()
    return float(json.loads(said))


async def says(model: str) -> AsyncIterator[bytes]:
    """Answer by the model: `quick` at once, `stream` piece by piece without an end."""
    for number in itertools.count():
        yield event({"content": f"word {number} "})
        if model != "stream":
            break
        await asyncio.sleep(1 / DELTAS_A_SECOND)
    yield event({}, "stop") + END


def rows() -> list[Row]:
    """The rows."""
    with upstream(says) as url:
        beside, alone = asyncio.run(latency(url))
        ours, floor = asyncio.run(memory(url)), asyncio.run(_in_process(url))
    streams = f"{THREADS - 1} threads that stream {DELTAS_A_SECOND} deltas a second each"
    memories = f"memory of a thread of {THREADS}, floor a session that a program holds"
    return [
        row(f"a turn of one thread beside {streams}, floor alone", beside, alone, 2, "ms", 1e3),
        row(memories, ours, floor, 1.25, "KiB", 1 / 1024),
    ]


def main() -> None:
    """Print one line a row."""
    if sys.argv[1:]:
        print(json.dumps(asyncio.run(session_memory(sys.argv[1]))))
        return
    for line in rows():
        print(line, flush=True)


if __name__ == "__main__":
    main()
