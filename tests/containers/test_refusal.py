"""Where there can be no containers, one sentence says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.scene import temporary_folder

TRY = """
import asyncio, os, sys
from pathlib import Path
from ferrule.containers import LocalHost
from ferrule.process.launcher import LaunchError

async def main():
    try:
        async with LocalHost.open(Path(sys.argv[1])) as host:
            await (await host.create()).run("true")
    except LaunchError as error:
        print("REFUSED", error)
    except Exception as error:
        print(type(error), error)

asyncio.run(main())
"""


def test_without_user_namespaces(place: Path) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", TRY]
    with temporary_folder() as folder:
        done = subprocess.run([*words, str(folder / "place")], capture_output=True, text=True, check=False)
        assert not os.path.exists(folder / "place") or os.listdir(folder / "place") == ["lock"]
    assert done.stdout.startswith("REFUSED containers need user namespaces"), done
    assert "sysctl -w user.max_user_namespaces" in done.stdout


def test_where_parts_of_proc_are_hidden(place: Path) -> None:
    """As in Docker: the kernel mounts no new one there, and the old one shows the host's processes."""
    script = 'mount -t tmpfs none /proc/irq && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", TRY]
    with temporary_folder() as folder:
        done = subprocess.run([*words, str(folder / "place")], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("REFUSED the kernel refuses a /proc of its own"), done
    assert "systempaths=unconfined" in done.stdout


def test_inside_a_sandbox(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ferrule.containers import ContainerError, LocalHost, local

    monkeypatch.setattr(local, "is_inside", lambda: True)
    with pytest.raises(ContainerError, match="already inside a sandbox"):
        LocalHost.open(place)
