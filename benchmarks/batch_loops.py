"""Loops that do the tasks of `bench_batch` as programs do without `ferrule batch`: `LOOP SERVER TASKS LANES`.

Nothing is confined, resumed, retried or recorded; each task has an empty folder, and one line of results.
"""

import asyncio
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Task = Callable[[str], Awaitable[str]]
"""Does one task in a folder, and returns the last words."""

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "shell_command",
        "description": "Run a shell script.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


async def shell(command: str, cwd: str) -> str:
    """Run a script by a plain subprocess."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", command, cwd=cwd, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return f"Exit code: {process.returncode}\nOutput:\n{output.decode()}"


def asyncio_loop(client: Any) -> Task:
    """The loop that anybody writes first."""

    async def run(cwd: str) -> str:
        messages: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            answer = await client.chat.completions.create(model="scripted-model", messages=messages, tools=[TOOL])
            said = answer.choices[0].message
            if not said.tool_calls:
                return str(said.content)
            messages.append(said.model_dump(exclude_none=True))
            for call in said.tool_calls:
                output = await shell(json.loads(call.function.arguments)["command"], cwd)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": output})

    return run


def openai_agents_loop(client: Any) -> Task:
    """`Runner.run` of openai-agents."""
    sdk: Any = importlib.import_module("agents")
    sdk.set_tracing_disabled(True)
    model = sdk.OpenAIChatCompletionsModel(model="scripted-model", openai_client=client)

    async def run(cwd: str) -> str:
        async def shell_command(command: str) -> str:
            """Run a shell script."""
            return await shell(command, cwd)

        agent = sdk.Agent(name="a", model=model, tools=[sdk.function_tool(shell_command)])
        return str((await sdk.Runner.run(agent, "go", max_turns=50)).final_output)

    return run


LOOPS = {"asyncio": asyncio_loop, "openai-agents": openai_agents_loop}


async def work(name: str, server: str, tasks: int, lanes: int, out: Path) -> None:
    """Do so many tasks, so many at a time."""
    openai: Any = importlib.import_module("openai")
    client = openai.AsyncOpenAI(base_url=server, api_key="none", max_retries=0)
    run = LOOPS[name](client)
    numbers = iter(range(tasks))

    async def lane() -> None:
        for number in numbers:
            with tempfile.TemporaryDirectory() as cwd:
                said = await run(cwd)
            with out.open("a") as file:
                file.write(json.dumps({"id": number, "last_message": said}) + "\n")

    await asyncio.gather(*(lane() for _ in range(lanes)))


def main() -> None:
    """Share the tasks among two processes, as the batch does."""
    name, server, tasks, lanes, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    child = os.fork()
    half = tasks // 2
    count = half if child == 0 else tasks - half
    asyncio.run(work(name, server, count, max(1, lanes // 2), Path(folder, f"{bool(child)}.jsonl")))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
