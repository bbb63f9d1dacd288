"""Floods of processes, memory and files stay within the container, with control groups and without."""

import os
from pathlib import Path

import pytest

from ferrule.containers import Container, ContainerSettings, HostLimits, LocalHost
from ferrule.process.launcher import Limits
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from ferrule.sandbox.linux.cgroups import NAMES, Group, Groups, find_groups, remove_unheld

MEGABYTE = 1 << 20
MEMORY = ContainerSettings(memory_bytes=200 * MEGABYTE, max_processes=400)
TOGETHER = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        kept = bytearray(120 << 20)
        time.sleep(60)
        os._exit(0)
statuses = [os.wait()[1] for _ in range(3)]
os.kill(0, 15) if statuses == [9, 9, 9] else print(statuses)
"""


@pytest.fixture(params=[True, False], ids=["groups", "watch"])
async def limited(request: pytest.FixtureRequest, place: Path) -> "LocalHost":
    if request.param and isinstance(found := find_groups(), str):
        pytest.skip(f"no control groups here: {found}")
    return LocalHost.open(place, limits=HostLimits(groups=request.param))


async def test_memory_of_all_together(limited: LocalHost) -> None:
    async with limited as host:
        container = await host.create(MEMORY)
        done = await container.run(["python3", "-c", TOGETHER], timeout=40)
        assert (done.status.signal, done.stdout.text()) == (15, ""), done
        assert "memory (0.195 GiB) was used up" in done.stderr.text()
        alone = await container.run(["python3", "-c", "bytearray(1 << 30)"], timeout=40)
        assert alone.exit_code
        fine = await container.run(["python3", "-c", "print(len(bytearray(100 << 20)))"])
        assert (fine.stdout.text(), fine.stderr.text()) == (f"{100 * MEGABYTE}\n", "")
        assert not container.restarted
        await container.aclose()


HIDDEN = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
libc.shmat.restype, libc.shmat.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]
def segment():
    place = libc.shmat(libc.shmget(0, 120 << 20, 0o1600), None, 0)
    ctypes.memset(place, 1, 120 << 20)
    libc.shmdt(place)
def file():
    os.write(os.memfd_create("x"), bytes(120 << 20))
for _ in range(2): globals()[sys.argv[1]]()
while sys.argv[1] == "file" or open("/proc/sysvipc/shm").read().count("\\n") > 1:
    time.sleep(0.05)
sys.exit("removed")
"""


async def test_memory_that_no_process_shows(limited: LocalHost) -> None:
    async with limited as host:
        container = await host.create(MEMORY)
        for kind in ("segment", "file"):
            done = await run(
                container,
                ["python3", "-c", HIDDEN, kind],
                env=container.environment, cwd="/mnt/data", timeout_ms=40_000,
            )  # fmt: skip
            said = done.stderr.text()
            assert not done.timed_out
            # Segments that nobody has attached are removed, and the process goes on.
            assert done.status.signal == 9 or "not implemented" in said or (kind, said) == ("segment", "removed\n"), (
                done
            )
        fine = await container.run("python3 -c 'print(len(bytearray(100 << 20)))'; tail -n +2 /proc/sysvipc/shm")
        assert fine.stdout.text() == f"{100 * MEGABYTE}\n"
        await container.aclose()


async def test_a_fork_bomb(limited: LocalHost) -> None:
    async with limited as host:
        container = await host.create(MEMORY)
        await container.run(":(){ :|:& };: 2> /dev/null", timeout=20)
        assert (await container.run("echo works")).stdout.text() == "works\n"
        await container.aclose()


async def test_a_disk_flood(host: LocalHost) -> None:
    container = await host.create(ContainerSettings(disk_bytes=50 * MEGABYTE, file_bytes=20 * MEGABYTE))
    big = await container.run("head -c 30000000 /dev/zero > big; stat -c %s big")
    assert big.stdout.text() == f"{20 * MEGABYTE}\n"
    flood = await container.run(
        "n=0; while true; do n=$((n + 1)); head -c 10000000 /dev/zero > f$n; sync f$n; done", timeout=50
    )
    assert not flood.timed_out and flood.status.signal == 9
    assert "remove some" in flood.stderr.text()
    tidied = await container.run("rm f* big; ls | wc -l")
    assert (tidied.stdout.text(), tidied.stderr.text()) == ("0\n", "")
    reserved = await container.run("fallocate -l 10M big; python3 -c 'import os; os.posix_fallocate(1, 0, 9)' > small")
    assert "not supported" in reserved.stderr.text()
    assert {path.name: path.stat().st_size for path in container.folder.iterdir()} == {"big": 0, "small": 9}
    await container.aclose()


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "plain"])
async def test_limits_of_one_command(container: Container, inside: bool) -> None:
    launcher = container if inside else PlainLauncher()
    limits = Limits(data_bytes=300 * MEGABYTE, file_bytes=MEGABYTE, cpu_seconds=7)
    script = "import resource as r; print(*(r.getrlimit(n)[0] for n in (r.RLIMIT_DATA, r.RLIMIT_FSIZE, r.RLIMIT_CPU)))"
    # Without a sandbox they are set when the command has started: it waits for a line.
    argv = ["python3", "-c", f"input(); {script}"]
    done = await run(launcher, argv, env={"PATH": "/usr/bin:/bin"}, cwd="/tmp", limits=limits, stdin=b"\n")
    assert done.stdout.text().split() == [str(300 * MEGABYTE), str(MEGABYTE), "7"]


def test_groups_of_version_2(tmp_path: Path) -> None:
    """A stand-in: the tests' machine has version 1, and only the kernel makes the files."""
    group = Group(Groups(2, tuple((kind, str(tmp_path)) for kind in ("memory", "pids", "cpu"))), 1.5)
    group.make(memory_bytes=1000, max_processes=10)
    [folder] = group.paths()
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == {"memory.max": "1000", "memory.swap.max": "0", "pids.max": "10", "cpu.max": "150000 100000"}
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\n")
    assert group.killed() == 3


def test_what_a_machine_has_is_tried() -> None:
    found = find_groups()
    assert isinstance(found, Groups) or found
    if isinstance(found, Groups):
        own = f"ferrule-{os.getpid()}-*"
        assert not [path for _, folder in found.folders for path in Path(folder).glob(own)], "the trial left a group"


def test_groups_of_a_killed_process_go_though_another_has_its_number(tmp_path: Path) -> None:
    groups = Groups(2, (("memory", str(tmp_path)), ("pids", str(tmp_path))))
    [living] = Group(groups).paths()
    others, dying = (tmp_path / f"{NAMES}{pid}-1-{'0' * 12}" for pid in (os.getpid(), 1))
    users = tmp_path / f"{NAMES}web"
    for group in (living, others, users):
        group.mkdir()
    (dying / "process").mkdir(parents=True)  # a folder cannot be removed either, as long as something is in it
    assert not remove_unheld(groups)
    assert {*tmp_path.iterdir()} == {living, users, dying}
    (dying / "process").rmdir()
    assert remove_unheld(groups)
    assert {*tmp_path.iterdir()} == {living, users}
