"""Every known attack from inside a container, as root and as an ordinary user; what counts is the host afterwards."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ferrule.containers import ContainerSettings, HostLimits, LocalHost
from ferrule.sandbox.linux.holders import IDS, can_map_ids
from ferrule.sandbox.linux.root import Bind
from tests.sandbox.conftest import USERS
from tests.sandbox.scene import ATTACKS, DAEMON_SECONDS, ENTRY, PROCESSES, SYSTEM_PYTHON, Scene
from tests.sandbox.test_escape import is_running

WHAT_IS_ITS_OWN = {
    "gitfile_rename", "gitfile_replace", "rename_over_placeholder", "rename_root", "write_agents_skill",
    "write_codex_config", "write_ferrule_config",
}  # fmt: skip
"""In a container a workspace is its own files, which nothing outside runs or trusts."""
NOT_THERE = {"ok_git_status", "ok_read_disk"}
"""The scene's repositories and files lie outside."""
OWN = ("ws", "nogit", "second", "worktree", "symlinked", "outer")
"""The workspaces of the scene, which lie in the container."""
AS_ROOT_INSIDE = {"chown 0 /mnt/data", "setpriv --reuid=0 true"}
"""What root may do with the ids of its container, none of which is anybody's outside."""
GIVEN = ContainerSettings(max_processes=PROCESSES)
MORE = r"""
for path in /etc/shadow /root/.ssh /root/.bashrc /home/*/.bashrc /var/log /var/lib /boot /run/docker.sock /sys/kernel \
    /proc/1/root/usr /proc/1/environ /proc/1/maps /proc/1/exe /proc/kcore /proc/kmsg /proc/sysrq-trigger /dev/mem \
    /dev/vda /dev/sda /dev/kvm /dev/fuse /dev/.scratch/x; do
    [ "$(head -c 1 "$path" 2> /dev/null | wc -c)" = 0 ] || echo "$path"
done
for line in 'mount -t tmpfs x /mnt' 'unshare -U true' 'unshare -r true' 'chroot / true' 'mknod /tmp/n b 254 0' 'dmesg' \
    'nsenter -t 1 -m true' 'su -c true' 'sudo -n true' 'hostname other' 'ip link add d type dummy' \
    'ip link set lo down' \
    'chown 0 /mnt/data' 'chmod u+s /usr/bin/env' 'cp /usr/bin/env /tmp/e && chmod u+s /tmp/e' \
    'echo 1 > /proc/sys/kernel/core_pattern' 'echo x > /usr/x' 'echo > /dev/tcp/192.0.2.1/80' 'setpriv --reuid=0 true' \
    'echo > /dev/udp/192.0.2.1/53' 'exec 3< /dev/tcp/127.0.0.1/22' 'touch /mnt/skills/x' 'rm -r /mnt/skills/s' \
    'echo x > /mnt/skills/s/SKILL.md' 'chmod 777 /mnt/skills/s' 'mv /mnt/skills/s /mnt/skills/t' 'umount /mnt/skills' \
    'ln /mnt/skills/s/SKILL.md /mnt/data/l' 'mount -o remount,bind,rw /mnt/skills' '! cat /mnt/skills/s/SKILL.md'; do
    bash -c "$line" > /dev/null 2>&1 && echo "$line"
done
"""


def readable_by(user: int, folder: Path) -> None:
    """Give the container's folder to the user whose processes are to run it."""
    if user != os.getuid():
        subprocess.run(["chown", "-R", f"{user}:{user}", str(folder)], check=True)
        for parent in folder.parents:
            if os.path.samefile(parent, "/var/tmp"):
                break  # it is everybody's
            parent.chmod(0o755)


@pytest.mark.parametrize("user", USERS, ids=lambda user: "root" if user == 0 else "user")
async def test_nothing_gets_out(place: Path, user: int) -> None:
    with Scene(user) as scene:
        await attack(scene)


@pytest.mark.skipif(os.getuid() != 0, reason="many ids take root")
async def test_nothing_gets_out_with_many_ids(place: Path, tmp_path: Path) -> None:
    place.mkdir(exist_ok=True)
    if not can_map_ids(place):
        pytest.skip("this file system cannot be mounted with other ids")
    for name in ("usr", "etc", "mnt/work"):
        (tmp_path / name).mkdir(parents=True)
    for top in ("bin", "sbin", "lib", "lib64"):
        (tmp_path / top).symlink_to(os.path.join("usr", top))
    (tmp_path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    binds = (Bind("/usr", "/usr"), Bind("/etc/alternatives", "/etc/alternatives"))
    with Scene(0) as scene:
        await attack(scene, ContainerSettings(max_processes=PROCESSES, root=str(tmp_path), binds=binds))


async def attack(scene: Scene, settings: ContainerSettings = GIVEN) -> None:
    host = LocalHost.open(
        scene.base / "kept" / "containers", limits=HostLimits(groups=not scene.user), interpreter=scene.interpreter
    )
    container = host.adopt(settings)
    shutil.copytree(ATTACKS, container.folder / "attacks", ignore=shutil.ignore_patterns("__pycache__"))
    if settings.root:  # becoming another user inside is no escape
        attacks = container.folder / "attacks" / "processes.py"
        attacks.write_text(attacks.read_text().replace("os.setuid(os.getuid() + 1)", f"os.setuid({IDS})"))
    inside = {name: f"/mnt/data/{name}" for name in OWN}
    for name in OWN:
        (container.folder / name).mkdir()
    (container.skills_folder / "s").mkdir()
    (container.skills_folder / "s" / "SKILL.md").write_text("as it was")
    (container.folder / "scene.json").write_text(json.dumps(scene.values | inside))
    readable_by(scene.user, container.folder.parent)
    before = scene.snapshot()
    async with host:
        done = await container.run([SYSTEM_PYTHON, "-c", ENTRY, "/mnt/data", "/mnt/data/scene.json"])
        assert done.exit_code == 0, done.stderr.text()
        results = json.loads(done.stdout.text().splitlines()[-1])
        opened = {name for name, result in results.items() if result.startswith("OPEN") and not name.startswith("ok_")}
        working = {name: result for name, result in results.items() if name.startswith("ok_") and result != "OPEN"}
        more = await container.run(MORE)
        skill = (container.skills_folder / "s" / "SKILL.md").read_text()
        assert container.mapped == bool(settings.root)
        await container.aclose()
    assert opened == WHAT_IS_ITS_OWN
    assert set(working) == NOT_THERE
    allowed = AS_ROOT_INSIDE if settings.root else set()
    assert ({*more.stdout.text().splitlines()}, skill) == (allowed, "as it was")
    assert {path: what for path, what in scene.snapshot().items() if "containers" not in path} == before
    assert scene.reached() == []
    assert scene.victim.poll() is None
    assert not is_running(f"sleep {DAEMON_SECONDS}")
    assert not scene.leaked_shared_memory()
