"""Programs that fork, spawn and thread: each process has a loop, sandboxes and connections of its own."""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from ferrule import Agent, Toolset
from ferrule.testing import ScriptedModel
from tests.processes import DEADLINE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks as on Linux")
METHODS = ["fork", "spawn", "forkserver"]


def said(cwd: str, word: str) -> str:
    """What a confined command of a toolset of this process prints."""
    with Toolset.for_model("gpt-5.5", cwd=cwd, tools=["shell_command"]) as tools:
        return tools.call_sync("shell_command", {"command": f"echo {word}"}, timeout=DEADLINE).text


def asked(url: str, cwd: str) -> str:
    return Agent("m", base_url=url, wire="chat", tools=[], cwd=cwd).run_sync("go").text


def in_child(work: Callable[[], None]) -> int:
    """Fork as a preforking server does, let the child leave by the interpreter's end, and return its exit code."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(DEADLINE))  # a child that waits for its parent's loop would wait for ever
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_calls_tools_after_its_parent_did(tmp_path: Path) -> None:
    assert "parent" in said(str(tmp_path), "parent")

    def work() -> None:
        assert "child" in said(str(tmp_path), "child")

    assert in_child(work) == 0
    assert "again" in said(str(tmp_path), "again")


def test_a_child_leaves_what_its_parent_keeps_open(tmp_path: Path) -> None:
    with Agent(cwd=tmp_path, tools=["shell_command"], sandbox="danger-full-access") as agent:
        here = agent.tools_map["shell_command"]
        action = here.action_from_arguments({"command": "echo $PPID"})
        before = here.call(action).to_llm_content

        def work() -> None:
            there = agent.tools_map["shell_command"]
            assert str(os.getpid()) in str(there.call(action).to_llm_content)
            agent.close()

        assert in_child(work) == 0
        assert here.call(action).to_llm_content[-1] == before[-1]


@pytest.mark.parametrize("method", METHODS)
def test_processes_of_multiprocessing(tmp_path: Path, method: str) -> None:
    assert "parent" in said(str(tmp_path), "parent")
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = pool.starmap(said, [(str(tmp_path), "one"), (str(tmp_path), "two")])
    assert "one" in results[0] and "two" in results[1]


@pytest.mark.parametrize("method", METHODS)
def test_agents_in_a_process_pool(tmp_path: Path, method: str) -> None:
    with ScriptedModel(lambda request: "Hi.") as model:
        assert asked(model.base_url, str(tmp_path)) == "Hi."
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            futures = [pool.submit(asked, model.base_url, str(tmp_path)) for _ in range(3)]
            assert [future.result(DEADLINE) for future in futures] == ["Hi."] * 3


def test_threads_share_the_loop_of_plain_code(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda word: said(str(tmp_path), word), ["a1", "b2", "c3", "d4"]))
    assert [word in text for word, text in zip(["a1", "b2", "c3", "d4"], results, strict=True)] == [True] * 4


async def test_plain_code_below_a_running_loop(tmp_path: Path) -> None:
    assert "inside" in await asyncio.to_thread(said, str(tmp_path), "inside")
    assert "below" in said(str(tmp_path), "below")
