"""How cells and their kernel end: time limits, interrupts, deaths, and starts that fail."""

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from ferrule.process import python_kernel
from ferrule.process.kernel import CellResult, CellTimedOut, Kernel, KernelDied
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.process.python_kernel import LOST_DESCRIPTOR, start_python
from tests.process.cells import LIMIT, run, started, told
from tests.processes import alive, until

pytestmark = pytest.mark.usefixtures("patience")

STUCK = [
    "while True: pass",
    "time.sleep(600)",
    "await asyncio.sleep(600)",
    "asyncio.run(asyncio.sleep(600))",
    "subprocess.run(['sleep', '600'])",
    "threading.Event().wait()",
    "class R:\n    def __repr__(self):\n        while True: pass\nR()",
    "try:\n    time.sleep(600)\nfinally:\n    closed = True",
]


async def stuck(kernel: Kernel, cell: str) -> CellResult:
    """The result of a cell that does not end, with a limit in which it surely begins."""
    for limit in (200, 2_000, 10_000):
        result = await kernel.run(f"print('begun')\n{cell}", limit)
        if told(result).startswith("begun"):
            break
    return result


async def test_the_time_limit_interrupts_a_cell_and_keeps_what_was_defined(kernel: Kernel) -> None:
    await run(kernel, "kept = 7")
    await run(kernel, "import asyncio, subprocess, threading, time; await asyncio.sleep(0)")
    for cell in STUCK:
        result = await stuck(kernel, cell)
        assert result.interrupted and not result.ok, cell
        assert told(result).startswith("begun\nTraceback") and told(result).endswith("KeyboardInterrupt"), cell
        assert "<kernel>" not in told(result), cell
    assert await run(kernel, "kept, closed") == "(7, True)"
    result = await stuck(kernel, "try:\n    time.sleep(600)\nexcept KeyboardInterrupt: 'caught'")
    assert result.interrupted and result.ok


async def test_the_shortest_limit_does_not_miss_its_cell(kernel: Kernel) -> None:
    await run(kernel, "kept = 7")
    for _ in range(20):
        result = await kernel.run("while True: pass", 1)
        assert result.interrupted
    assert await run(kernel, "kept") == "7"


async def test_an_interrupt_that_comes_late_hits_no_later_cell(kernel: Kernel) -> None:
    for _ in range(3):
        await kernel.interrupt()
        assert await run(kernel, "import time; time.sleep(0.01); 'whole'") == "'whole'"


async def test_a_cell_that_ignores_the_interrupt_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_kernel, "INTERRUPT_GRACE", 0.1)
    kernel = await started(tmp_path)
    pid = int(await run(kernel, "import os, signal; signal.signal(2, signal.SIG_IGN); os.getpid()"))
    with pytest.raises(CellTimedOut, match="the cell ran longer than 2000 ms") as lost:
        await kernel.run(
            "import time; signal.signal(2, signal.SIG_IGN); print('said')\nwhile True: time.sleep(0.1)", 2000
        )
    assert lost.value.written.text() == "said\n"
    assert kernel.lost and not alive(pid)
    with pytest.raises(KernelDied):
        await kernel.run("1", LIMIT)


async def test_a_cancelled_cell_is_interrupted_and_leaves_no_output(kernel: Kernel, tmp_path: Path) -> None:
    cell = "kept = 7; print('lost'); open('begun', 'w').close()\nwhile True: pass"
    running = asyncio.create_task(kernel.run(cell, LIMIT))
    await until((tmp_path / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not kernel.lost and await run(kernel, "kept") == "7"


async def test_sys_exit_ends_the_cell_alone(kernel: Kernel) -> None:
    said = "SystemExit: the cell ended, and the kernel goes on"
    for cell, ok, expected in [
        ("import sys; x = 1; sys.exit()\nx = 2", True, said),
        ("sys.exit(3)", False, said),
        ("exit()", True, said),
        ("sys.exit('why')", False, f"why\n{said}"),
    ]:
        result = await kernel.run(cell, LIMIT)
        assert (result.ok, told(result)) == (ok, expected)
    assert await run(kernel, "x, sys.stdin.read()") == "(1, '')"


DEATHS = [
    ("import os; os._exit(3)", "exited with code 3"),
    ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9"),
    ("import signal; signal.raise_signal(signal.SIGSEGV)", "was ended by signal 11"),
    ("import os; os.close(3)", f"exited with code {LOST_DESCRIPTOR}"),
    ("import os; os.closerange(3, 200)", f"exited with code {LOST_DESCRIPTOR}"),
    ("import os; _ = os.dup2(2, 4); _ = None", f"exited with code {LOST_DESCRIPTOR}"),
]


@pytest.mark.parametrize(("cell", "how"), DEATHS, ids=["exit", "kill", "fault", "close", "closerange", "replace"])
async def test_a_death_is_told_with_what_was_written_before(kernel: Kernel, cell: str, how: str) -> None:
    with pytest.raises(KernelDied, match=how) as died:
        await kernel.run(f"print('before')\n{cell}", LIMIT)
    assert died.value.written.text() == "before\n" and died.value.said == "before\n"
    assert kernel.death == how and kernel.lost


async def test_a_program_that_is_no_python_is_told(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'Python 3.8 or newer is needed, not 2.7' >&2; exit 1\n")
    old.chmod(0o755)
    for program, expected in (
        ("/bin/false", "/bin/false does not start as a kernel: exited with code 1"),
        (str(old), "exited with code 1: Python 3.8 or newer is needed, not 2.7"),
        ("/nowhere/python", "exited with code 127: .*not found"),
    ):
        with pytest.raises(LaunchError, match=expected):
            await start_python(PlainLauncher(), program, os.environ, str(tmp_path))


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600\n")
    slow.chmod(0o755)
    starting = asyncio.create_task(start_python(PlainLauncher(), str(slow), os.environ, str(tmp_path)))
    await until((tmp_path / "pid").exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_the_kernel_ends_with_its_host(tmp_path: Path) -> None:
    script = f"""
        import asyncio, os, sys
        from ferrule.process.plain import PlainLauncher
        from ferrule.process.python_kernel import start_python
        async def main():
            kernel = await start_python(PlainLauncher(), sys.executable, os.environ, {str(tmp_path)!r})
            print((await kernel.run("import os; os.getpid()", 60000)).inherited.text(), flush=True)
            os.kill(os.getpid(), {int(signal.SIGKILL)})
        asyncio.run(main())
    """
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await host.communicate()
    await until(lambda: not alive(int(output)))
