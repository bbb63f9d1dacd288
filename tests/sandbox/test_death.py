"""SIGKILL of the agent, of the zygote, of a command's init: nothing is left, and the next command works."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ferrule.process.launcher import Child, ExitStatus, LaunchError, Limits, Pipes
from ferrule.sandbox.plan import RESERVED_NAMES, ConfinementPlan, Root
from ferrule.sandbox.sandbox import Sandbox
from tests.processes import alive, children_of, until
from tests.sandbox.conftest import OpenSandbox
from tests.sandbox.running import run

AGENT = """
import asyncio, json, os, sys
from pathlib import Path
from ferrule.process.launcher import Limits, Pipes
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox

async def main():
    home, workspace, argv = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    sandbox = Sandbox(Protection(ConfinementPlan((Root(workspace),)), home))
    child = await sandbox.launch(argv, {"PATH": os.environ["PATH"]}, workspace, Pipes(), Limits())
    print(os.read(child.stdout, 100), flush=True)
    await child.wait()

asyncio.run(main())
"""
SECONDS = [f"65{number:03}.{secrets.randbelow(10**6):06}" for number in range(10)]
"""By which a test finds its own `sleep` again."""
LINE = "setsid sleep {seconds} & echo ready; sleep {seconds}; exit 1"


def agent(home: Path, workspace: Path, seconds: str) -> subprocess.Popen[str]:
    """Another process of ours whose command runs."""
    argv = json.dumps(["/bin/bash", "-c", LINE.format(seconds=seconds)])
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(home), str(workspace), argv], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.stdout.close()
    return process


def running(seconds: str) -> bool:
    return (
        subprocess.run(
            ["pgrep", "-f", f"^(sleep|setsid sleep) {seconds}"], stdout=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    )


def mothers_of(parent: int) -> list[int]:
    done = subprocess.run(["pgrep", "-P", str(parent), "-x", "ferrule"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in done.stdout.split()]


def zygotes_of(parent: int) -> list[int]:
    return [zygote for mother in mothers_of(parent) for zygote in children_of(mother)]


inits_of = children_of


def init_with_command(zygote: int) -> int:
    return next(pid for pid in inits_of(zygote) if inits_of(pid))


def wait_without_the_loop(pids: list[int]) -> None:
    """Until these have ended, while the event loop hears nothing of it."""
    deadline = time.monotonic() + 10
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def placeholders(workspace: Path) -> list[str]:
    return sorted(set(os.listdir(workspace)) & set(RESERVED_NAMES))


def records(home: Path) -> list[str]:
    return [name for name in os.listdir(home / "sandbox") if name not in ("lock", "own-repositories.lock")]


def mounts_of(workspace: Path) -> list[str]:
    """The processes in whose namespace something of the workspace is mounted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if str(workspace) in path.read_text():
                found.append(path.parent.name)
        except OSError:
            pass
    return found


async def test_sigkill_of_the_agent(namespaces: None, home: Path, workspace: Path) -> None:
    process = agent(home, workspace, SECONDS[1])
    assert placeholders(workspace) == sorted(RESERVED_NAMES)
    assert mounts_of(workspace)
    process.kill()
    process.wait()
    await until(lambda: not running(SECONDS[1]) and not mounts_of(workspace))
    await until(lambda: placeholders(workspace) == [] and records(home) == [])


async def test_sigkill_of_the_agent_and_its_zygote_at_once(
    namespaces: None, home: Path, workspace: Path, open_sandbox: OpenSandbox
) -> None:
    """Nobody is left who could take the placeholders away: the next start does."""
    process = agent(home, workspace, SECONDS[2])
    (zygote,) = zygotes_of(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(zygote, signal.SIGKILL)
    process.kill()
    process.wait()
    await until(lambda: not running(SECONDS[2]) and not mounts_of(workspace))
    assert placeholders(workspace) == sorted(RESERVED_NAMES)
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    await open_sandbox(ConfinementPlan((Root(str(elsewhere)),)))
    assert placeholders(workspace) == []
    await until(lambda: records(home) == [])


async def test_two_agents_share_the_placeholders(namespaces: None, home: Path, workspace: Path) -> None:
    """The first to end must not take them from the other, whose protection would go with them."""
    first, second = agent(home, workspace, SECONDS[3]), agent(home, workspace, SECONDS[4])
    first.kill()
    first.wait()
    await until(lambda: not running(SECONDS[3]) and len(mounts_of(workspace)) < 10)
    assert running(SECONDS[4])
    assert placeholders(workspace) == sorted(RESERVED_NAMES)
    second.kill()
    second.wait()
    await until(lambda: not running(SECONDS[4]) and placeholders(workspace) == [])


async def start(sandbox: Sandbox, workspace: Path, seconds: str) -> Child:
    argv = ["/bin/bash", "-c", LINE.format(seconds=seconds)]
    child = await sandbox.launch(argv, {"PATH": os.environ["PATH"]}, str(workspace), Pipes(), Limits())
    assert os.read(child.stdout, 100) == b"ready\n"
    return child


def close(child: Child) -> None:
    for fd in (child.stdout, child.stderr):
        os.close(fd)  # type: ignore[arg-type]  # pipes


async def test_sigkill_of_the_zygote(open_sandbox: OpenSandbox, workspace: Path, home: Path) -> None:
    sandbox = await open_sandbox()
    child = await start(sandbox, workspace, SECONDS[5])
    (zygote,) = zygotes_of(os.getpid())
    os.kill(zygote, signal.SIGKILL)
    with pytest.raises(LaunchError, match="the next command gets a new sandbox"):
        await asyncio.wait_for(child.wait(), 10)
    assert not running(SECONDS[5])
    close(child)
    assert (await run(sandbox, "echo next", str(workspace))).output == "next\n"
    assert zygotes_of(os.getpid()) != [zygote]
    await until(lambda: placeholders(workspace) == [] and records(home) == [])


async def test_sigkill_of_an_idle_zygote(open_sandbox: OpenSandbox, workspace: Path) -> None:
    """Also when nobody has noticed yet."""
    sandbox = await open_sandbox()
    (zygote,) = zygotes_of(os.getpid())
    inits = inits_of(zygote)
    os.kill(zygote, signal.SIGKILL)
    wait_without_the_loop(inits)
    assert (await run(sandbox, "echo next", str(workspace))).output == "next\n"


async def test_sigkill_of_the_mother(open_sandbox: OpenSandbox, workspace: Path, home: Path) -> None:
    """Zygotes go on, also while nobody has noticed; the next one gets another mother, and none of them stays."""
    sandbox = await open_sandbox()
    child = await start(sandbox, workspace, SECONDS[8])
    (mother,), (zygote,) = mothers_of(os.getpid()), zygotes_of(os.getpid())
    os.kill(mother, signal.SIGKILL)
    wait_without_the_loop([mother])
    (home.parent / "another").mkdir()
    another = await open_sandbox(ConfinementPlan((Root(str(home.parent / "another")),)))
    assert (await run(another, "echo another", "/")).output == "another\n"
    assert (await run(sandbox, "echo next", str(workspace))).output == "next\n"
    assert mothers_of(os.getpid()) != [mother] and alive(zygote)
    await child.kill_tree()
    close(child)
    await sandbox.close()
    await another.close()
    assert mothers_of(os.getpid()) == []
    await until(lambda: not alive(zygote))


async def test_sigkill_of_the_agent_and_the_mother_at_once(namespaces: None, home: Path, workspace: Path) -> None:
    process = agent(home, workspace, SECONDS[9])
    (mother,), (zygote,) = mothers_of(process.pid), zygotes_of(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(mother, signal.SIGKILL)
    process.kill()
    process.wait()
    await until(lambda: not running(SECONDS[9]) and not alive(zygote) and not mounts_of(workspace))
    assert placeholders(workspace) == [] and records(home) == []


async def test_sigkill_of_the_init(open_sandbox: OpenSandbox, workspace: Path, home: Path) -> None:
    sandbox = await open_sandbox()
    child = await start(sandbox, workspace, SECONDS[6])
    (zygote,) = zygotes_of(os.getpid())
    os.kill(init_with_command(zygote), signal.SIGKILL)
    with pytest.raises(LaunchError, match="ended before the command did"):
        await asyncio.wait_for(child.wait(), 10)
    assert not running(SECONDS[6])
    close(child)
    assert zygotes_of(os.getpid()) == [zygote]
    assert (await run(sandbox, "echo next", str(workspace))).output == "next\n"
    await until(lambda: placeholders(workspace) == [] and records(home) == [])


async def test_sigkill_of_spares(open_sandbox: OpenSandbox, workspace: Path) -> None:
    sandbox = await open_sandbox()
    (zygote,) = zygotes_of(os.getpid())
    await until(lambda: len(inits_of(zygote)) >= 2)
    inits = inits_of(zygote)
    for pid in inits:
        os.kill(pid, signal.SIGKILL)
    wait_without_the_loop(inits)
    assert (await run(sandbox, "echo next", str(workspace))).output == "next\n"


async def test_closing_ends_everything(open_sandbox: OpenSandbox, workspace: Path, home: Path) -> None:
    sandbox = await open_sandbox()
    child = await start(sandbox, workspace, SECONDS[7])
    await sandbox.close()
    assert await child.wait() == ExitStatus(signal=signal.SIGKILL)
    close(child)
    assert not running(SECONDS[7])
    assert mothers_of(os.getpid()) == []
    assert placeholders(workspace) == [] and records(home) == []
