"""Containers of an ordinary user with subordinate ids, in a mount namespace with an /etc/subuid of its own."""

import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

import ferrule
from ferrule.sandbox.linux.id_map import PROGRAMS
from tests.containers.layouts import file, folder, layer, layout
from tests.containers.small import packed, small_root
from tests.sandbox.scene import SYSTEM_PYTHON, temporary_folder

USER, FIRST = 65534, 2_000_000_000
ENTER = 'for table in subuid subgid; do mount --bind "$1" /etc/$table || exit 9; done; shift; exec "$@"'
SCRIPT = r"""
import asyncio, os, signal, sys
from pathlib import Path
from ferrule.cli.main import main
from ferrule.containers import ContainerSettings, LocalHost
from ferrule.containers.images import Images
from ferrule.containers.report import containers_report
from ferrule.sandbox.linux.root import Bind

base, what = Path(sys.argv[1]), sys.argv[2]
place, store = base / "place", base / "home/images"

async def killed():
    async with LocalHost.open(place) as host:
        container = await host.create(settings("", temporary=True))
        print((await container.run("mkdir -m 700 d; touch d/x; chown 5:60 d/x d && echo given")).stdout.text(), end="")
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)

def settings(user, **more):
    image = Images(store).get("small")
    return ContainerSettings(root=str(image.root), user=user, env=image.config.variables, **more)

async def used():
    async with LocalHost.open(place) as host:
        print("swept", not place.exists())
        container = await host.create(settings("5:60", temporary=True))
        script = "id -u; cat /of/them; echo x > new; stat -c '%u %g' new; echo x > /of/root || echo no"
        print(container.mapped, (await container.run(script)).stdout.text().split())
        own = await host.create(settings("5:60", temporary=True, binds=(Bind(str(base / "work"), "/mnt/work", True),)))
        done = await own.run("id -u; cd /mnt/work; >made; chown 5 made || echo kept; echo more >> /of/them && echo ok")
        print(own.mapped, done.stdout.text().split(), "5:60 cannot be had" in done.stderr.text())
    print((base / "work/made").stat().st_uid == os.getuid(), os.path.exists(place))
    print([line.partition('; ')[2] for line in await containers_report() if "/etc/subuid" in line])

if what == "killed":
    asyncio.run(killed())
elif what == "used":
    asyncio.run(used())
else:
    sys.exit(main(sys.argv[2:]))
"""
TOLD = """swept True
True ['5', 'them', '5', '60', 'no']
False ['0', 'kept', 'ok'] True
True False
['all user ids, as /etc/subuid gives them to you; one where a folder of yours can be written']
"""


def run(base: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script as the user."""
    source = Path(ferrule.__file__).parent.parent
    env = {
        **os.environ,
        "HOME": str(base),
        "FERRULE_HOME": str(base / "home"),
        "PYTHONPATH": os.pathsep.join([str(source), *site.getsitepackages()]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    as_user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", SYSTEM_PYTHON, "-c", SCRIPT)
    line = ["unshare", "-m", "sh", "-c", ENTER, "sh", str(base / "table"), *as_user, str(base), *words]
    return subprocess.run(line, env=env, capture_output=True, text=True, check=False, cwd="/", timeout=120)


def require() -> None:
    if os.getuid() != 0 or not all(map(os.path.exists, PROGRAMS.values())):
        pytest.skip("it takes root, to become a user with subordinate ids, and the package uidmap")
    ours = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    if subprocess.run([SYSTEM_PYTHON, "-c", ours], check=False).returncode != 0:
        pytest.skip(f"{SYSTEM_PYTHON}, which any user may run, is of another version")


def test_an_ordinary_user_has_many_ids() -> None:
    require()
    with temporary_folder() as base:
        base.chmod(0o755)
        small_root(base / "root", ("sh", "cat", "id", "stat", "mkdir", "touch", "chown"))
        theirs = layer(
            folder("of", uid=5, gid=60), file("of/them", b"them\n", 0o600, uid=5, gid=60), file("of/root", b"", 0o600)
        )
        layout(base / "image", packed(base / "root"), theirs)
        shutil.rmtree(base / "root")
        (base / "work").mkdir()
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(base)], check=True)
        (base / "table").write_text(f"{USER}:{FIRST}:65536\n")
        done = run(base, "runtime", "import", str(base / "image"), "--name", "small")
        assert done.returncode == 0, done.stderr
        assert (base / "home/images/small/rootfs/of/them").stat().st_uid == FIRST + 4
        killed = run(base, "killed")
        assert killed.stdout == "given\n", killed.stderr
        done = run(base, "used")
        assert done.stdout == TOLD, done
        removed = run(base, "runtime", "rm", "small")
        assert removed.returncode == 0, removed.stderr
        assert os.listdir(base / "home/images") == [".lock"]
