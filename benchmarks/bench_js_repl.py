"""`js_repl`, called as by a model, beside what Node itself takes to evaluate the same cell."""

import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.measure import bounded, medians
from ferrule import Toolset

ROUNDS = 150
GROWTH_CALLS = 1_000
CELL = "const rows = Array.from({length: 100}, (_, n) => ({n, square: n * n})); rows.at(-1).square + await 1"
NODE = """
const {Session} = require("inspector");
const session = new Session();
session.connect();
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const started = process.hrtime.bigint();
  const done = () => process.stdout.write(`${process.hrtime.bigint() - started}\\n`);
  session.post("Runtime.evaluate", {expression: JSON.parse(line), replMode: true, awaitPromise: true}, done);
});
"""


async def evaluate(tools: Toolset, cell: str) -> str:
    (answer,) = await tools.run([{"type": "custom_tool_call", "call_id": "c", "name": "js_repl", "input": cell}])
    return str(answer["output"])


async def measure(cwd: str) -> tuple[list[float], float]:
    """Median seconds of Node's own evaluation and of a call; bytes that 1,000 calls more leave in the kernel."""
    pipe = asyncio.subprocess.PIPE
    node = await asyncio.create_subprocess_exec("node", "-e", NODE, stdin=pipe, stdout=pipe)
    assert node.stdin is not None and node.stdout is not None
    into, out = node.stdin, node.stdout

    async def floor() -> float:
        into.write(json.dumps(CELL).encode() + b"\n")
        return int(await out.readline()) / 1e9

    async with Toolset.for_model("gpt-5.5", cwd=cwd, sandbox="danger-full-access", tools=["js_repl"]) as tools:

        async def ours() -> float:
            started = time.perf_counter()
            answer = await evaluate(tools, CELL)
            spent = time.perf_counter() - started
            assert answer == "9802", answer
            return spent

        await evaluate(tools, CELL)
        spent = await medians([floor, ours], ROUNDS)
        into.close()
        await node.wait()
        pid = int(await evaluate(tools, "process.pid"))
        before = await settled(tools, pid)
        return spent, await settled(tools, pid) - before


async def settled(tools: Toolset, pid: int) -> float:
    """Resident bytes of the kernel after many calls."""
    for _ in range(GROWTH_CALLS):
        await evaluate(tools, CELL)
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def main() -> None:
    if shutil.which("node") is None:
        print("js_repl: node is not installed")
        return
    with tempfile.TemporaryDirectory() as cwd:
        (least, ours), growth = asyncio.run(measure(cwd))
    print(bounded("js_repl second call, over Node's own evaluation", ours - least, 3, "ms", 1e3), flush=True)
    print(bounded("js_repl kernel, growth over 1,000 calls", growth, 16, "MiB", 2**-20), flush=True)


if __name__ == "__main__":
    main()
