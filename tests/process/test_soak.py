"""Many commands while the processors are busy: right exit code, last byte, and nothing left."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from ferrule.process.launcher import Pipes, Pty, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from tests.processes import gained, held

KINDS: list[Stdio] = [Pipes(), Pty()]


@pytest.fixture
def load() -> Iterator[None]:
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for spinner in spinners:
        spinner.kill()
        spinner.wait()


async def one(env: Mapping[str, str], number: int, stdio: Stdio) -> None:
    code = number % 100
    done = await run(
        PlainLauncher(), ["sh", "-c", f"echo first; echo last {number}; exit {code}"], env=env, cwd="/tmp", stdio=stdio
    )
    text = done.output.text().replace("\r", "")
    assert (done.exit_code, text, done.notice) == (code, f"first\nlast {number}\n", None)


@pytest.mark.parametrize("stdio", KINDS)
async def test_60_commands_one_after_the_other(env: Mapping[str, str], load: None, stdio: Stdio) -> None:
    before = held()
    for number in range(60):
        await one(env, number, stdio)
    assert not any(gained(before))


@pytest.mark.parametrize("stdio", KINDS)
async def test_50_commands_at_once(env: Mapping[str, str], load: None, stdio: Stdio) -> None:
    before = held()
    for _ in range(2):
        await asyncio.gather(*(one(env, number, stdio) for number in range(50)))
    assert not any(gained(before))


@pytest.mark.parametrize("stdio", KINDS)
async def test_the_last_byte_of_large_outputs(env: Mapping[str, str], load: None, stdio: Stdio) -> None:
    async def large(number: int) -> None:
        script = f"seq 1 20000; sleep 60 & echo end {number}"
        done = await run(PlainLauncher(), ["sh", "-c", script], env=env, cwd="/tmp", stdio=stdio)
        if done.notice:
            os.kill(int(done.notice.split()[2]), 9)
        assert done.output.text().replace("\r", "").endswith(f"20000\nend {number}\n")

    await asyncio.gather(*(large(number) for number in range(10)))
