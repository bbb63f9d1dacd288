"""Many calls: every exit code and last byte right, nothing left over."""

import asyncio

import pytest

from tests.builtin.workbench import Bench, body, field
from tests.processes import gained, held

CALLS = [("exec_command", {"tty": True}), ("exec_command", {}), ("shell_command", {})]


async def one(bench: Bench, number: int) -> None:
    name, arguments = CALLS[number % len(CALLS)]
    code = number % 100
    text = await bench.call(name, command=f"echo first; echo last {number}; exit {code}", **arguments)
    label = "Exit code:" if name == "shell_command" else "Process exited with code"
    assert (int(field(text, label)), body(text)) == (code, f"first\nlast {number}\n")


@pytest.mark.parametrize("observed", [True, False])
async def test_60_calls_one_after_the_other_and_50_at_once(bench: Bench, observed: bool) -> None:
    bench.host.observed = observed
    await asyncio.gather(*(one(bench, number) for number in range(50)))
    before = held()
    for number in range(60):
        await one(bench, number)
    for _ in range(2):
        await asyncio.gather(*(one(bench, number) for number in range(50)))
    assert not any(gained(before))
    assert len(bench.state.commands.sessions) == 0
