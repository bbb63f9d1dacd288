"""Many commands while the processors are busy: right exit code, last byte, and nothing left."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

import pytest

from ferrule.process.launcher import Pipes, Pty, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from tests.processes import children, open_fds

KINDS: list[Stdio] = [Pipes(), Pty()]


@pytest.fixture
def load() -> Iterator[list[int]]:
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range((os.cpu_count() or 1) + 1)]
    yield children()
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
async def test_200_commands_one_after_the_other(env: Mapping[str, str], load: list[int], stdio: Stdio) -> None:
    fds, threads = open_fds(), threading.active_count()
    for number in range(200):
        await one(env, number, stdio)
    assert (open_fds(), threading.active_count()) == (fds, threads)
    assert sorted(children()) == sorted(load)


@pytest.mark.parametrize("stdio", KINDS)
async def test_50_commands_at_once(env: Mapping[str, str], load: list[int], stdio: Stdio) -> None:
    fds, threads = open_fds(), threading.active_count()
    for _ in range(2):
        await asyncio.gather(*(one(env, number, stdio) for number in range(50)))
    assert (open_fds(), threading.active_count()) == (fds, threads)
    assert sorted(children()) == sorted(load)


@pytest.mark.parametrize("stdio", KINDS)
async def test_the_last_byte_of_large_outputs(env: Mapping[str, str], load: list[int], stdio: Stdio) -> None:
    async def large(number: int) -> None:
        script = f"seq 1 20000; sleep 60 & echo end {number}"
        done = await run(PlainLauncher(), ["sh", "-c", script], env=env, cwd="/tmp", stdio=stdio)
        if done.notice:
            os.kill(int(done.notice.split()[2]), 9)
        assert done.output.text().replace("\r", "").endswith(f"20000\nend {number}\n")

    await asyncio.gather(*(large(number) for number in range(10)))
