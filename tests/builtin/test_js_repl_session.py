"""The kernel in a session: confined like any command, and ended with the turn that it holds up."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule import Agent, Toolset
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.permissions import WorkspaceWrite
from tests.builtin.js import JS, needs_node
from tests.processes import alive, until
from tests.sandbox.test_death import zygotes_of
from tests.session.models import InProcessModel, answers, says

pytestmark = [needs_node, pytest.mark.usefixtures("own_home")]


async def run(tools: Toolset, code: str) -> str:
    (answer,) = await tools.run([{"type": "custom_tool_call", "call_id": "c", "name": "js_repl", "input": code}])
    return str(answer["output"])


async def test_the_kernel_is_confined(tmp_path: Path, own_children: Callable[[], list[int]]) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (outside := tmp_path / "outside").mkdir()
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    async with Toolset.for_model("gpt-5.5", cwd=inside, sandbox=policy, tools=[*JS]) as tools:
        write = "require('fs').writeFileSync('{}/made', 'x'); 'written'"
        if "written" not in (first := await run(tools, write.format(inside))):
            pytest.skip(f"no sandbox here: {first}")
        refused = await run(tools, write.format(outside))
        assert "EROFS" in refused or "EACCES" in refused or "EPERM" in refused
        assert "ok" not in await run(tools, "await fetch('http://127.0.0.1:9').then(() => 'ok', e => e.cause.code)")
        loop = "// codex-js-repl: timeout_ms=200\nwhile (true);"
        assert (await run(tools, loop)).startswith("js_repl execution timed out")
        assert await run(tools, "typeof write") == "undefined"
    assert not (outside / "made").exists()
    assert own_children() == []


async def test_a_cell_whose_sandbox_is_killed_ends_at_once(
    tmp_path: Path, own_children: Callable[[], list[int]]
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    async with Toolset.for_model("gpt-5.5", cwd=inside, sandbox="workspace-write", tools=[*JS]) as tools:
        if "2" not in (first := await run(tools, "1 + 1")) or not (zygotes := zygotes_of(os.getpid())):
            pytest.skip(f"no sandbox of namespaces here: {first}")
        waiting = asyncio.create_task(
            run(tools, "require('fs').writeFileSync('runs', ''); await new Promise(() => {})")
        )
        await until((inside / "runs").exists)
        for zygote in zygotes:
            os.kill(zygote, signal.SIGKILL)
        async with asyncio.timeout(10):
            assert "exited unexpectedly: the sandbox of this command ended" in await waiting
        assert "3" in await run(tools, "1 + 2")
    assert own_children() == []


def cell(code: str, call_id: str) -> FunctionCall:
    return FunctionCall(call_id=call_id, name="js_repl", arguments=json.dumps({"code": code}))


async def test_b056_interrupting_the_turn_ends_the_busy_kernel(
    tmp_path: Path, own_children: Callable[[], list[int]]
) -> None:
    busy = "require('fs').writeFileSync('started', `${process.pid}`); while (true);"
    model = InProcessModel([cell("let kept = 1", "c1"), cell(busy, "c2")], [cell("typeof kept", "c3")], [says("Done.")])
    agent = Agent(model, tools=[*JS], cwd=tmp_path, sandbox="danger-full-access")
    async with await agent.open() as session:
        turn = asyncio.create_task(session.run("go"))
        started = tmp_path / "started"
        await until(lambda: started.exists() and started.read_text() != "")
        pid = int(started.read_text())
        assert session.interrupt()
        assert (await turn).aborted
        assert not alive(pid)
        assert (await session.run("again")).text == "Done."
        assert answers(session)[1].startswith("aborted")
        assert answers(session)[2].splitlines() == [
            "A new kernel was started, because the last one was interrupted; earlier bindings are gone.",
            "undefined",
        ]
    assert own_children() == []
