"""Two containers never see each other."""

from ferrule.containers import LocalHost

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
