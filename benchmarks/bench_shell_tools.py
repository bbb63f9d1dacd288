"""The tools that run commands, called as by a model, beside asyncio's own way to run `bash -c true`."""

import asyncio
import json
import subprocess
import tempfile

from benchmarks.measure import in_turns, row
from ferrule import Toolset

ROUNDS = 150


async def floor() -> None:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", "true", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await process.communicate()


async def measure(cwd: str) -> list[float]:
    """Median seconds: the floor, `shell_command`, `exec_command` through pipes and on a terminal."""
    async with Toolset.for_model("gpt-5.5", cwd=cwd, sandbox="danger-full-access", tools=["*"]) as tools:

        async def call(name: str, **arguments: object) -> None:
            item = {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(arguments)}
            (answer,) = await tools.run([item])
            assert "code 0" in str(answer["output"]) or "code: 0" in str(answer["output"]), answer

        await call("shell_command", command="true")  # the login shell runs before the first command only
        return await in_turns(
            [
                floor,
                lambda: call("shell_command", command="true"),
                lambda: call("exec_command", cmd="true"),
                lambda: call("exec_command", cmd="true", tty=True),
            ],
            ROUNDS,
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as cwd:
        least, shell_command, pipes, terminal = asyncio.run(measure(cwd))
    print(row("shell_command true, floor asyncio's bash -c", shell_command, least, 1.5, "ms", 1e3), flush=True)
    print(row("exec_command true, floor asyncio's bash -c", pipes, least, 1.5, "ms", 1e3), flush=True)
    print(row("exec_command true with a terminal, floor pipes", terminal, pipes, 1.5, "ms", 1e3), flush=True)


if __name__ == "__main__":
    main()
