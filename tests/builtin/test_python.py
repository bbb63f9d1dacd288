"""The kernel through the tool, as a model uses it, and in a session."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from ferrule import Agent, Toolset
from ferrule.builtin import python
from ferrule.builtin.python import PythonRepl, needed_python
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.permissions import DangerFullAccess, SandboxPolicy, WorkspaceWrite
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.conversation import Conversation
from ferrule.tools.effects import CommandEffect
from tests.builtin.conftest import Benches
from tests.builtin.states import conversation
from tests.builtin.workbench import Bench, unaffected
from tests.process.cells import PICTURE, URL
from tests.processes import alive, children, until
from tests.sandbox.test_death import zygotes_of
from tests.session.models import InProcessModel, answers, says

GONE = "earlier variables are gone."


@pytest.fixture
def tool(benches: Benches) -> Bench:
    return benches("python", state=chosen(benches.cwd))


def chosen(cwd: Path) -> Conversation:
    """A conversation whose user has chosen this interpreter."""
    return msgspec.structs.replace(unaffected(cwd), python=sys.executable)


async def run(bench: Bench, *cells: str, **arguments: object) -> str:
    text = ""
    for cell in cells:
        text = await bench.call("python", code=cell, **arguments)
    return text


async def test_output_value_and_error_come_back(tool: Bench) -> None:
    assert await run(tool, "x = 4; print('said')\nx + 1") == "said\n5"
    assert await run(tool, "y = x") == "(no output)"
    output = await tool.output("python", code="print('said')\n1 / 0")
    assert output.success is False
    assert output.text.startswith("said\nTraceback") and output.text.endswith("ZeroDivisionError: division by zero")
    assert await run(tool, "print('50%\\r100%')") == "100%"
    assert (await tool.output("python", code="1", timeout_ms=0)).success is False


async def test_pictures_are_images_for_the_model(tool: Bench) -> None:
    await run(tool, PICTURE)
    output = await tool.output("python", code="Picture()")
    assert output.body == (InputText("<picture>"), InputImage(image_url=URL))


async def test_output_is_cut_at_both_ends(benches: Benches) -> None:
    tool = benches("python", state=chosen(benches.cwd), budget=OutputBudget(100))
    text = await run(tool, "for i in range(20000): print('line', i)\n'the end'")
    assert len(text) < 600 and text.startswith("line 0\n") and text.endswith("'the end'") and "truncated" in text


async def test_the_limit_is_told_and_variables_are_kept(tool: Bench) -> None:
    await run(tool, "kept = 7; import time")
    output = await tool.output("python", code="time.sleep(600)", timeout_ms=200)
    assert output.success is False and output.text.endswith(
        "KeyboardInterrupt\nThe limit of 200 ms was reached: the cell was interrupted, and variables are kept."
    )
    assert await run(tool, "kept") == "7"


async def test_a_cell_that_cannot_be_interrupted_is_told_once(tool: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.process.python_kernel.INTERRUPT_GRACE", 0.1)
    monkeypatch.setattr(python, "INTERRUPT_GRACE", 0.1)
    stubborn = "import signal, time; signal.signal(2, signal.SIG_IGN); print('said')\nwhile True: time.sleep(0.1)"
    output = await tool.output("python", code=stubborn, timeout_ms=2000)
    assert output.success is False and output.text == (
        "said\nThe kernel was ended, because the cell went on for 0.1 s after it was interrupted at the limit of "
        f"2000 ms. The next call starts a new kernel; {GONE}"
    )
    assert await run(tool, "'signal' in globals()") == "False"


async def test_a_death_is_told_once(tool: Bench, tmp_path: Path) -> None:
    died = await run(tool, "import os; print('last words'); os._exit(3)")
    assert died == (
        f"last words\nThe python kernel ended with this cell: it exited with code 3.\n"
        f"The next call starts a new kernel; {GONE}"
    )
    assert "descriptor 3 or 4, which are the kernel's" in await run(tool, "import os; os.close(4)")
    assert await run(tool, "kept = 1; kept") == "1"
    kernel = tool.state.shared.get(PythonRepl)._kernel
    assert kernel is not None
    leave = "while not os.path.exists('go'): time.sleep(0.01)\n    os._exit(0)"
    await run(tool, f"import os, threading, time\ndef leave():\n    {leave}\nthreading.Thread(target=leave).start()")
    (tmp_path / "go").touch()
    await until(lambda: kernel.death is not None)
    note = f"A new kernel was started, because the last one had ended by itself; {GONE}"
    assert await run(tool, "'kept' in globals()") == f"{note}\nFalse"
    assert await run(tool, "'kept' in globals()") == "False"


async def test_every_cell_is_told_as_the_command_it_is(tool: Bench) -> None:
    await run(tool, "1 + 1", "2 + 2")
    effects = [effect for effect in tool.host.effects if isinstance(effect, CommandEffect)]
    assert [effect.argv for effect in effects] == [(sys.executable, "-c", "1 + 1"), (sys.executable, "-c", "2 + 2")]


async def test_no_kernel_before_the_first_cell(tool: Bench) -> None:
    tool.dispatcher.registry.load_all()
    assert children() == []


def state(cwd: Path, policy: SandboxPolicy, chosen: str | None = None) -> Conversation:
    return msgspec.structs.replace(conversation(cwd, policy), python=chosen)


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_which_interpreter_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    confined = WorkspaceWrite()
    first, second = program(tmp_path / "bin/python3"), program(tmp_path / "other/python9")
    env = {"PATH": f"{tmp_path}/bin:{tmp_path}/other"}
    assert needed_python(state(tmp_path, confined), env) == first
    plain_venv = program(tmp_path / "venv/bin/python")
    assert needed_python(state(tmp_path, confined), env) == plain_venv
    dot_venv = program(tmp_path / ".venv/bin/python")
    assert needed_python(state(tmp_path, confined), env) == dot_venv
    assert needed_python(state(tmp_path, DangerFullAccess()), env) == first
    for chosen in (second, "python9", "~/other/python9"):
        assert needed_python(state(tmp_path, confined, chosen), env) == second
    with pytest.raises(RespondToModel, match=r"config\.toml says python = 'python7', and no such program is there"):
        needed_python(state(tmp_path, confined, "python7"), env)
    with pytest.raises(RespondToModel, match=r"Python 3\.8 or newer, but it is not installed"):
        needed_python(state(tmp_path, DangerFullAccess()), {"PATH": str(tmp_path / "empty")})


async def test_an_interpreter_that_does_not_start_is_told(benches: Benches, tmp_path: Path) -> None:
    broken = msgspec.structs.replace(unaffected(tmp_path), python="/bin/false")
    said = await run(benches("python", state=broken), "1")
    assert said == "python cannot start its kernel: /bin/false does not start as a kernel: exited with code 1"


async def called(tools: Toolset, code: str) -> str:
    call = {"type": "function_call", "call_id": "c", "name": "python", "arguments": json.dumps({"code": code})}
    (answer,) = await tools.run([call])
    return str(answer["output"])


@pytest.mark.usefixtures("own_home")
async def test_the_kernel_is_confined(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    async with Toolset.for_model("gpt-5.5", cwd=inside, sandbox=policy, tools=["python"]) as tools:
        write = "open('{}/made', 'w').write('x'); 'written'"
        if "written" not in (first := await called(tools, write.format(inside))):
            pytest.skip(f"no sandbox here: {first}")
        refused = await called(tools, write.format(outside))
        assert "Read-only file system" in refused or "Permission" in refused
        assert "Error: " in await called(tools, "import socket; socket.create_connection(('127.0.0.1', 9), 5)")
        assert await called(tools, "kept = 7") == "(no output)"
        busy = json.dumps({"code": "while True: pass", "timeout_ms": 200})
        (answer,) = await tools.run([{"type": "function_call", "call_id": "c", "name": "python", "arguments": busy}])
        assert "the cell was interrupted, and variables are kept" in str(answer["output"])
        assert await called(tools, "kept") == "7"
        if zygotes := zygotes_of(os.getpid()):
            waiting = asyncio.create_task(called(tools, "open('runs', 'w').close()\nwhile True: pass"))
            await until((inside / "runs").exists)
            for zygote in zygotes:
                os.kill(zygote, signal.SIGKILL)
            assert "The python kernel ended with this cell: the sandbox of this command ended" in await waiting
            assert "3" in await called(tools, "1 + 2")
    assert not (outside / "made").exists()
    assert children() == []


@pytest.mark.usefixtures("own_home")
async def test_interrupting_the_turn_ends_the_cell_and_keeps_the_kernel(tmp_path: Path) -> None:
    def cell(code: str, call_id: str) -> FunctionCall:
        return FunctionCall(call_id=call_id, name="python", arguments=json.dumps({"code": code}))

    busy = "import os; open('new', 'w').write(str(os.getpid())); os.rename('new', 'started')\nwhile True: pass"
    model = InProcessModel([cell("kept = 1", "c1"), cell(busy, "c2")], [cell("kept", "c3")], [says("Done.")])
    agent = Agent(model, tools=["python"], cwd=tmp_path, sandbox="danger-full-access")
    async with await agent.open() as session:
        turn = asyncio.create_task(session.run("go"))
        started = tmp_path / "started"
        await until(started.exists)
        assert session.interrupt()
        assert (await turn).aborted
        assert (await session.run("again")).text == "Done."
        assert answers(session)[1].startswith("aborted") and answers(session)[2] == "1"
    assert not alive(int(started.read_text()))
    assert children() == []
