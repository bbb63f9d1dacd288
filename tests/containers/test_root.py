"""What a command sees of the machine: what the list of its root holds, and nothing else."""

import os
import socket
from pathlib import Path

import pytest

from ferrule.containers import Container, ContainerSettings, LocalHost
from ferrule.process.launcher import LaunchError
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.linux.root import TOP, Bind, checked_bind

LOOK = r"""
id -un; id -u; id -g; hostname; pwd; echo "$HOME"
echo -- ; ls -A /
echo -- ; tr '\0' ' ' < /proc/1/cmdline; cat /proc/1/comm
echo -- ; cat /proc/self/mountinfo
echo -- ; cat /proc/self/cgroup
echo -- ; ls /sys 2>&1; cat /proc/keys /proc/cmdline /proc/timer_list 2> /dev/null | wc -c; ls /etc
echo -- ; cat /proc/net/dev | tail -n +3 | cut -d: -f1; getent hosts localhost
echo -- ; df --output=size /dev/shm | tail -1
echo -- ; for place in / /usr /etc /opt /mnt /mnt/skills /var /dev /proc/sys; do
    touch $place/x 2> /dev/null && echo $place; done
echo -- ; for place in /mnt/data /tmp /var/tmp ~ /dev/shm; do touch $place/x || echo $place; done
"""


CALL = "import socket; socket.socket(socket.AF_UNIX).connect('/work/write/host.sock')"


async def test_what_a_command_sees(container: Container, place: Path) -> None:
    done = await container.run(LOOK)
    assert done.stderr.text() == ""
    who, root, first, mounts, groups, closed, network, shared, changed, fixed = done.stdout.text().split("--\n")
    assert who.split() == ["user", "1000", "1000", "container", "/mnt/data", "/home/user"]
    own = {"dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "tmp", "usr", "var"}
    assert own <= set(root.split()) <= own | set(TOP)
    assert first.replace(" ", "").split() == ["ferrule", "ferrule"] or first.split() == ["ferrule", "ferrule"]
    shown = [line.split()[3] for line in mounts.splitlines() if str(place.parent) in line]
    assert {Path(path).name for path in shown} == {"data", "tmp", "home", "skills"}
    assert all(line.split(":")[2] == "/" for line in groups.split()), "the host's groups are named"
    assert "cannot access '/sys'" in closed and closed.splitlines()[1].strip() == "0"
    assert not {"shadow", "sudoers", "environment", "machine-id", "fstab", "resolv.conf"} & set(closed.split())
    assert network.split()[0] == "lo" and "eth" not in network and "localhost" in network
    assert shared.split() == ["65536"]
    assert (changed, fixed) == ("", "")


async def test_the_default_place_names_no_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Path) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "somebody"))
    async with LocalHost.open() as host:
        container = await host.create(ContainerSettings(temporary=True))
        seen = (await container.run("cat /proc/self/mountinfo /proc/mounts; env")).stdout.text()
        assert container.folder.is_dir()
    assert f"/var/tmp/ferrule-{os.getuid()}/" in seen
    assert "somebody" not in seen and str(Path.home()) not in seen
    assert not container.folder.parent.parent.exists(), "the place itself is left"


async def test_files_are_shared_by_the_folder(container: Container) -> None:
    (container.folder / "in.txt").write_text("from outside")
    done = await container.run("cat in.txt; echo from inside > out.txt")
    assert done.stdout.text() == "from outside"
    assert (container.folder / "out.txt").read_text() == "from inside\n"


async def test_environment_and_standard_input(container: Container) -> None:
    os.environ["OURS"] = "secret"
    try:
        done = await container.run(["sh", "-c", "cat; env"], env={"GIVEN": "yes"}, stdin=b"typed\n")
    finally:
        del os.environ["OURS"]
    assert done.stdout.text().startswith("typed\n")
    assert "GIVEN=yes" in done.stdout.text() and "OURS" not in done.stdout.text()


async def test_a_program_or_folder_that_is_not_there(container: Container) -> None:
    with pytest.raises(LaunchError, match="program not found: nonesuch"):
        await container.run(["nonesuch"])
    with pytest.raises(LaunchError, match="cannot use the working directory /nowhere"):
        await container.run("true", cwd="/nowhere")
    with pytest.raises(LaunchError, match="NUL"):
        await container.run(["echo", "a\0b"])
    assert (await container.run("echo fine")).stdout.text() == "fine\n"


async def test_mounted_folders(host: LocalHost, tmp_path: Path) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    (tmp_path / "read" / "file").write_text("text")
    (tmp_path / "one").write_text("single")
    binds = (
        checked_bind(Bind(str(tmp_path / "read"), "/work/read")),
        checked_bind(Bind(str(tmp_path / "write"), "/work/write", writable=True)),
        checked_bind(Bind(str(tmp_path / "one"), "/opt/one")),
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "write" / "host.sock"))
        listener.listen()
        container = await host.create(ContainerSettings(binds=binds))
        called = await container.run(["python3", "-c", CALL])
    assert "PermissionError" in called.stderr.text() or "ConnectionRefusedError" in called.stderr.text()
    (tmp_path / "write" / "host.sock").unlink()
    done = await container.run("cat /work/read/file /opt/one; echo x > /work/write/new; echo x > /work/read/new")
    assert done.stdout.text() == "textsingle"
    assert "Read-only file system" in done.stderr.text()
    assert os.listdir(tmp_path / "write") == ["new"] and os.listdir(tmp_path / "read") == ["file"]
    await container.aclose()
    assert os.listdir(tmp_path / "write") == ["new"]


@pytest.mark.parametrize(
    "target", ["/", "/etc", "/usr/share", "/mnt/data/x", "/mnt", "/mnt/skills", "/a/../b", "/proc/x", "/bin"]
)
def test_where_nothing_may_be_mounted(tmp_path: Path, target: str) -> None:
    with pytest.raises(UsageError):
        checked_bind(Bind(str(tmp_path), target))
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        checked_bind(Bind(str(tmp_path / "missing"), "/work"))
