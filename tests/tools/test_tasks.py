"""Blocking functions on threads that are kept for the next."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from ferrule.tools import tasks
from ferrule.tools.tasks import run_blocking
from tests.processes import until


async def test_a_thread_is_kept_for_the_next_call() -> None:
    first = await run_blocking(threading.current_thread)
    assert await run_blocking(threading.current_thread) is first
    assert first.daemon
    assert await run_blocking(lambda: threading.current_thread().name) == "ferrule-<lambda>"
    await until(lambda: first.name == tasks.IDLE_NAME)


async def test_calls_at_once_have_a_thread_each() -> None:
    together = threading.Barrier(20)
    waits = [run_blocking(lambda: (together.wait(), threading.get_ident())[1]) for _ in range(20)]
    assert len(set(await asyncio.gather(*waits))) == 20


async def test_what_a_function_raises_is_raised_and_its_thread_goes_on() -> None:
    def fails(error: BaseException) -> None:
        raise error

    first = await run_blocking(threading.current_thread)
    with pytest.raises(KeyError):
        await run_blocking(fails, KeyError("a"))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_blocking(fails, StopIteration())
    assert await run_blocking(threading.current_thread) is first


async def test_a_thread_whose_result_nobody_waits_for_is_kept_too() -> None:
    go_on = threading.Event()
    waiting = asyncio.create_task(run_blocking(lambda: (go_on.wait(), threading.current_thread())))
    before = len(tasks._idle)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await until(lambda: len(tasks._idle) >= max(before, 1))


async def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "IDLE_SECONDS", 0.01)
    tasks._idle.clear()
    kept = await run_blocking(threading.current_thread)
    await until(lambda: not kept.is_alive())
    assert tasks._idle == []
    assert await run_blocking(threading.current_thread) is not kept


FORKS = """
import asyncio, os, threading
from ferrule.tools.tasks import run_blocking
first = asyncio.run(run_blocking(threading.get_native_id))
child = os.fork()
if child == 0:
    os._exit(asyncio.run(run_blocking(lambda: 7)))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert asyncio.run(run_blocking(threading.get_native_id)) == first
"""


def test_a_forked_child_starts_threads_of_its_own() -> None:
    env = os.environ | {"PYTHONWARNINGS": "ignore"}  # Python warns of a fork beside threads
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=30, env=env)
