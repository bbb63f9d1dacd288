"""`execute_bash` and `bash`: one shell, kept between calls."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule import Toolset
from ferrule.builtin import kept_shell
from ferrule.builtin.execute_bash import ExecuteBashExecutor
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.events import ExecCommandBegin, ExecCommandEnd
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.effects import CommandEffect
from tests.builtin.conftest import Benches
from tests.builtin.workbench import Bench
from tests.containers.leftovers import ours
from tests.processes import alive, eventually, gained, held, until

Run = Callable[..., Awaitable[str]]


@pytest.fixture
def bench(benches: Benches) -> Bench:
    return benches("execute_bash", "bash")


@pytest.fixture
def run(bench: Bench) -> Run:
    async def call(command: str, **arguments: object) -> str:
        return await bench.call("execute_bash", command=command, **arguments)

    return call


@pytest.fixture
def impatient(bench: Bench) -> None:
    """Commands without output are left running after a moment."""
    handler = bench.dispatcher.registry.handler("execute_bash")
    assert handler is not None
    executor = handler.executor  # type: ignore[attr-defined]
    assert isinstance(executor, ExecuteBashExecutor)
    executor.patience = 0.3


def end(cwd: object, code: int = 0) -> str:
    return f"[Current working directory: {cwd}]\n[Command finished with exit code {code}]"


async def test_the_output_and_how_it_ended(run: Run, bench: Bench, tmp_path: Path) -> None:
    assert await run("echo out; echo err >&2; printf 'no end'") == f"out\nerr\nno end\n{end(tmp_path)}"
    output = await bench.output("execute_bash", command="(exit 7)")
    assert (output.text, output.success) == (end(tmp_path, 7), False)


async def test_the_shell_is_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sub dir").mkdir()
    await run("x='a b'; f() { echo \"f: $x\"; }; export y=1; alias hello='echo hi'")
    assert (await run("cd 'sub dir'")) == end(tmp_path / "sub dir")
    assert await run("f; printenv y; hello; pwd") == f"f: a b\n1\nhi\n{tmp_path}/sub dir\n{end(tmp_path / 'sub dir')}"
    await run("sleep 60 & echo $! > pid")
    assert "Running" in await run("jobs")
    assert await run("kill $(cat pid); wait %1") == end(tmp_path / "sub dir", 143)


async def test_scripts_of_any_shape(run: Run, tmp_path: Path) -> None:
    script = "cat <<'EOF'\nit's \"quoted\" $HOME `x` !! \\n\nEOF\nfor i in 1 2; do\n  echo $i\ndone"
    assert await run(script) == f'it\'s "quoted" $HOME `x` !! \\n\n1\n2\n{end(tmp_path)}'
    assert await run("echo ünï") == f"ünï\n{end(tmp_path)}"
    assert await run("-x") == f"bash: -x: command not found\n{end(tmp_path, 127)}"
    long = "echo " + "x" * 100_000 + " | wc -c"
    assert (await run(long)).startswith("100001\n")
    assert "syntax error" in await run("if")
    assert await run("echo after") == f"after\n{end(tmp_path)}"


async def test_a_command_that_waits_is_left_running_and_takes_input(run: Run, impatient: None, tmp_path: Path) -> None:
    waiting = await run("echo name?; read name; echo hello $name")
    assert waiting.startswith("name?\n[The command has no new output after 0.3 seconds and still runs.")
    assert "exit code" not in waiting
    refused = await run("echo other")
    assert "Your command was NOT executed" in refused
    assert await run("", is_input=True) == waiting.removeprefix("name?\n")
    assert await run("Ada", is_input=True) == f"hello Ada\n{end(tmp_path)}"
    assert (
        await run("", is_input=True)
        == await run("")
        == "No command is running that could take input or has more output."
    )


async def test_a_limit_leaves_it_running_too(run: Run, tmp_path: Path) -> None:
    text = await run("echo a; read x; echo b", timeout=1)
    assert text.startswith("a\n[The command timed out after 1 seconds and still runs.")
    assert await run("", is_input=True, timeout=0.1) != text
    assert await run("go", is_input=True) == f"b\n{end(tmp_path)}"
    assert "timeout must be more than 0 seconds" in await run("true", timeout=0)


async def test_interrupting_ends_the_command_and_not_the_shell(run: Run, tmp_path: Path) -> None:
    await run("x=kept")
    for command in ("sleep 60; echo no", "while :; do :; done", "cat"):
        await run(command, timeout=0.3)
        assert await run("C-c", is_input=True) == end(tmp_path, 130), command
    assert (await run("echo $x")).startswith("kept\n")
    await run("cat", timeout=0.2)
    assert "needs a terminal" in await run("C-d", is_input=True)
    await run("C-c", is_input=True)


async def test_a_shell_that_ends_is_replaced(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    await run("x=1; cd sub")
    gone = await run("echo bye; exit 3")
    assert gone.startswith("bye\n") and "The shell ended with the command" in gone and gone.endswith("exit code 3]")
    assert await run("echo [$x]") == f"[]\n{end(tmp_path / 'sub')}"


async def test_a_shell_that_is_killed_while_it_waits_leaves_nothing(run: Run, tmp_path: Path) -> None:
    async def die() -> None:
        shell = int((await run("echo $$")).split()[0])
        os.kill(shell, signal.SIGKILL)
        await until(lambda: not alive(shell))

    before = held()
    await run("true")
    of_one_shell = len(gained(before).descriptors)
    for _ in range(3):
        await die()
        await run("true")  # perhaps the first to notice
        await run("true")
    assert len(gained(before).descriptors) <= of_one_shell


async def test_reset(run: Run, tmp_path: Path) -> None:
    await run("x=1; cd /; sleep 60", timeout=0.2)
    assert "cannot be used with is_input" in await run("x", reset=True, is_input=True)
    assert await run("echo [$x]", reset=True) == f"[]\n{end(tmp_path)}"
    assert "A new shell" in await run("", reset=True)


async def test_the_directory_may_go_away(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    await run("cd gone; rmdir ../gone")
    assert await run("echo still here", reset=True) == f"still here\n{end(tmp_path)}"


async def test_output_is_bounded(benches: Benches) -> None:
    bench = benches("execute_bash", budget=OutputBudget(100))
    output = await bench.output("execute_bash", command="seq 1 100000")
    assert "tokens truncated" in output.text and len(output.text) < 800 and output.bounded
    assert output.text.startswith("1\n2\n") and "\n100000\n" in output.text


async def test_the_mark_cannot_be_faked_or_seen(run: Run, tmp_path: Path) -> None:
    assert await run("set | grep -c PROMPT_COMMAND >/dev/null; printf '\\n0 /\\n'") == f"\n0 /\n{end(tmp_path)}"
    assert (await run("set")).endswith(end(tmp_path))


async def test_every_command_is_judged_and_told(bench: Bench, run: Run, tmp_path: Path) -> None:
    await run("echo one")
    await run("echo two | cat")
    effects = [effect for effect in bench.host.effects if isinstance(effect, CommandEffect)]
    assert [effect.argv for effect in effects] == [("bash", "-c", "echo one"), ("bash", "-c", "echo two | cat")]
    begins, ends = bench.host.told(ExecCommandBegin), bench.host.told(ExecCommandEnd)
    assert len(begins) == 2 and [(event.exit_code, event.output) for event in ends] == [(0, "one\n"), (0, "two\n")]
    assert bench.host.live() == "one\ntwo\n"


async def test_an_interrupted_turn_ends_the_command(
    bench: Bench, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_shell, "INTERRUPT_GRACE", 30.0)
    await run("x=kept")
    # Said by the background process itself: Ctrl-C ends one that has not begun, as a bash that writes a line break.
    await interrupted(bench, run, "sh -c 'echo $$ > pid; echo started; exec sleep 61' & sleep 62")
    assert await run("echo $? $x") == f"130 kept\n{end(tmp_path)}"
    await bench.close()
    assert eventually(lambda: not alive(int((tmp_path / "pid").read_text())))


async def test_an_interrupt_at_the_very_end_of_a_command_is_not_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bash, at its prompt, is held until the Ctrl-C and the next line have both come."""
    shell = await kept_shell.KeptShell.start(PlainLauncher(), "/bin/bash", dict(os.environ), str(tmp_path))
    pid, send = shell._child._process.pid, shell._send  # type: ignore[attr-defined]

    def send_and_release(text: str) -> None:
        send(text)
        os.kill(pid, signal.SIGCONT)

    def interrupt(*_: object) -> None:
        os.kill(pid, signal.SIGSTOP)
        interrupts.append(asyncio.ensure_future(shell.interrupt()))

    monkeypatch.setattr(shell, "_send", send_and_release)
    interrupts: list[asyncio.Future[None]] = []
    for number in range(10):
        await shell.run("true", None, 60, on_end=interrupt)
        step = await shell.run(f"echo {number}", None, 60)
        assert (step.transcript, step.exit_code) == (f"{number}\n", 0)
    await asyncio.gather(*interrupts)
    await shell.end()


async def test_a_script_sees_what_an_interrupted_one_left(bench: Bench, run: Run, tmp_path: Path) -> None:
    assert await run("set -ex") == end(tmp_path)
    await interrupted(bench, run, "sh -c 'printf start; echo ed; exec sleep $0' 60")
    assert await run("echo $? $_") == f"+ eval -- 'echo $? $_'\n++ echo 130 60\n130 60\n{end(tmp_path)}"


async def test_an_interrupt_while_bash_starts_a_program_leaves_the_shell(tmp_path: Path) -> None:
    """The signal misses the program, for which bash then waits with whatever comes next: in one of fifteen tries."""
    shell = await kept_shell.KeptShell.start(PlainLauncher(), "/bin/bash", dict(os.environ), str(tmp_path))
    for number in range(40):
        started = asyncio.Event()
        script = "sh -c 'echo started; exec sleep 61' & sleep 62"
        running = asyncio.ensure_future(shell.run(script, None, 60, on_output=lambda *_, on=started: on.set()))
        await started.wait()
        await asyncio.sleep(number % 10 * 50e-6)
        running.cancel()
        await asyncio.wait({running})
        assert shell.alive
    await shell.end()


async def interrupted(bench: Bench, run: Run, command: str) -> None:
    """Interrupt the turn of a command that has said `started`."""
    task = asyncio.ensure_future(run(command))
    await bench.host.until(lambda: "started" in bench.host.live())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_bash_of_claude(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_shell, "INTERRUPT_GRACE", 30.0)

    async def bash(**arguments: object) -> str:
        return await bench.call("bash", **arguments)

    assert await bash(command="x=1; cd /; echo hi") == "hi"
    assert await bash(command="echo $x; pwd; (exit 4)") == "1\n/\n[exit code 4]"
    assert await bash(command="true") == "(no output)"
    assert await bash(restart=True) == "tool has been restarted."
    assert await bash(command="echo [$x]; pwd") == f"[]\n{tmp_path}"
    assert "`command` is required" in await bash()
    handler = bench.dispatcher.registry.handler("bash")
    handler.executor.patience = 1.0  # type: ignore[union-attr]
    text = await bash(command="x=2; echo a; sleep 60")
    assert text.startswith("a\nthe command was interrupted after 1 seconds") and text.endswith("[exit code 124]")
    assert await bash(command="echo $x") == "2"


@pytest.mark.skipif(not hasattr(os, "unshare") and os.name != "posix", reason="needs a sandbox")
async def test_the_shell_is_confined(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with Toolset.for_model("devstral", cwd=work, tools=["execute_bash"]) as tools:
        call = {"type": "function_call", "call_id": "1", "name": "execute_bash"}
        arguments = '{"command": "x=5; touch inside; touch ../outside; echo $?"}'
        (answer,) = await tools.run([{**call, "arguments": arguments}])
        assert "exit code 0" in str(answer["output"]) and (work / "inside").exists()
        (answer,) = await tools.run([{**call, "arguments": '{"command": "echo $x"}'}])
        assert str(answer["output"]).startswith("5\n")


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox has a helper")
async def test_a_command_that_ends_with_its_sandbox_is_told_and_the_next_one_runs(tmp_path: Path) -> None:
    async with Toolset.for_model("devstral", cwd=tmp_path, tools=["execute_bash"]) as tools:

        async def call(arguments: str) -> str:
            given = {"type": "function_call", "call_id": "1", "name": "execute_bash", "arguments": arguments}
            (answer,) = await tools.run([given])
            return str(answer["output"])

        assert "still runs" in await call('{"command": "sleep 600", "timeout": 0.2}')
        for helper in ours(tmp_path / "none", {os.getpid()}):
            with suppress(ProcessLookupError):  # it went with another one
                os.kill(helper, signal.SIGKILL)
        assert (await call('{"command": "", "is_input": true}')).startswith("the sandbox of this command ended before")
        assert (await call('{"command": "echo again"}')).startswith("again\n")
