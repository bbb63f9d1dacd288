"""Two containers never see each other."""

import asyncio
import resource
from pathlib import Path

from ferrule.containers import Container, LocalHost
from tests.processes import until

LEAVE = r"""
echo secret > /tmp/shared-name; echo secret > ~/shared-name; echo secret > /dev/shm/shared-name
SECRET=secret sleep 1000 > /dev/null 2>&1 &
python3 - <<'X' > /dev/null 2>&1 &
import ctypes, socket, time
kept = []
for address in (("127.0.0.1", 8123), "\0shared-name", "/tmp/s"):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    listener = socket.socket(family); listener.bind(address); listener.listen(); kept.append(listener)
ctypes.CDLL(None).shmget(4711, 4096, 0o1666)
open("/mnt/data/ready", "w").close()
time.sleep(1000)
X
while [ ! -e /mnt/data/ready ]; do sleep 0.01; done
"""
LOOK = r"""
ls /tmp ~ /dev/shm /mnt/data
grep -rsl secret /proc/[0-9]*/environ
ps -eo comm= | grep -c sleep
python3 - <<'X'
import ctypes, socket
for address in (("127.0.0.1", 8123), "\0shared-name", "/tmp/s"):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    try:
        socket.socket(family).connect(address); print("reached", address)
    except OSError: pass
if ctypes.CDLL(None).shmget(4711, 4096, 0o666) >= 0: print("reached shared memory")
X
"""


async def test_two_containers(host: LocalHost) -> None:
    first, second = await host.create(), await host.create()
    left = await first.run(LEAVE, timeout=30)
    assert left.exit_code == 0, left.stderr.text()
    seen = await second.run(LOOK, timeout=30)
    assert seen.stdout.text().split() == ["/dev/shm:", "/home/user:", "/mnt/data:", "/tmp:", "0"]
    assert not (second.folder / "ready").exists()
    again = await first.run(LOOK, timeout=30)
    assert again.stdout.text().count("reached") == 4, "services go on, for their own container"
    await first.aclose()
    await second.aclose()


IN_FLIGHT = r"""
import array, socket, time
pairs, rights = [], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 253))]
try:
    while True:
        pairs.append(socket.socketpair())
        pairs[-1][0].setblocking(False)
        try:
            while True: pairs[-1][0].sendmsg([b"x"], rights)
        except BlockingIOError: pass
except OSError as error: print(error.errno)
open("full", "w").close()
time.sleep(1000)
"""
FEW = r"""
import ctypes, os, resource
libc = ctypes.CDLL(None)
watches = sum(libc.inotify_init1(0) >= 0 for _ in range(1000))
terminals = 0
try:
    while terminals < 1000: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY); terminals += 1
except OSError: pass
print(watches, terminals, resource.getrlimit(resource.RLIMIT_SIGPENDING)[1])
"""


async def test_descriptors_on_their_way(host: LocalHost, container: Container) -> None:
    """The kernel counts those of a user, and the commands of all containers are one user's."""
    flood = asyncio.create_task(container.run(["python3", "-c", IN_FLIGHT], timeout=60))
    await until((container.folder / "full").exists)
    beside = await host.create()
    assert (await beside.run("echo works")).stdout.text() == "works\n"
    await beside.aclose()
    flood.cancel()
    await asyncio.wait([flood])


async def test_what_all_programs_of_a_user_share(container: Container) -> None:
    done = await container.run(["python3", "-c", FEW])
    watches, terminals, signals = map(int, done.stdout.text().split())
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    assert (watches, terminals) == (min(most // 4, 1000), 256), done.stderr.text()
    assert signals == resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] // 4
