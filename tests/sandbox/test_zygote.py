"""The zygote as a program of its own."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from ferrule.sandbox.linux import filesystem, socket_search
from ferrule.sandbox.linux.kernel import StepError
from ferrule.sandbox.linux.mothers import PLACE

HEAVY = {"asyncio", "collections", "contextlib", "enum", "pathlib", "re", "signal", "socket", "subprocess", "threading"}
LIST_MODULES = """
import sys
sys.path.insert(0, sys.argv[1])
import linux.zygote
names = list(sys.modules)
import json
print(json.dumps(names))
"""


def test_it_imports_nothing_of_ours_and_nothing_heavy() -> None:
    command = [sys.executable, "-I", "-S", "-E", "-c", LIST_MODULES, str(PLACE)]
    modules = set(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    assert "linux.zygote" in modules
    assert not modules & (HEAVY | {"typing", "ferrule"})


@pytest.mark.parametrize(("number", "raised"), [(errno.ENOENT, False), (errno.EPERM, True)])
def test_s03_what_comes_and_goes_is_covered_or_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: bool
) -> None:
    """It vanishes whenever it is to be covered, and is there whenever it is looked for."""
    tries = []

    def cover_one(*cover: object) -> None:
        tries.append(cover)
        raise StepError(number, "move_mount")

    monkeypatch.setattr(filesystem, "cover_one", cover_one)
    with pytest.raises(StepError) if raised else nullcontext():
        filesystem.cover([("read", os.fsencode(tmp_path), b"")])
    assert len(tries) == filesystem.ATTEMPTS
    filesystem.cover([("read", b"/nonexistent/x", b"")])
    assert len(tries) == filesystem.ATTEMPTS + 1


def test_s03_what_is_there_again_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def cover_one(*cover: object) -> None:
        tries.append(cover)
        if len(tries) < 5:
            raise StepError(errno.ENOENT, "move_mount")

    monkeypatch.setattr(filesystem, "cover_one", cover_one)
    filesystem.cover([("read", os.fsencode(tmp_path), b"")])
    assert len(tries) == 5


def test_s12_sockets_are_found_beside_the_start_of_the_zygote(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "deep" / "er" / "s"))
        assert os.fsencode(tmp_path / "deep" / "er" / "s") in (
            socket_search.SocketSearch([os.fsencode(tmp_path)]).found() or []
        )


def test_s12_a_search_that_is_killed_or_fails_is_no_empty_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_search, "socket_files", lambda *folders: time.sleep(60))
    search = socket_search.SocketSearch([b"/"])
    os.kill(search.pid, signal.SIGKILL)
    with pytest.raises(StepError, match="did not end"):
        filesystem.HostSockets([]).cover_present(search)
    monkeypatch.setattr(socket_search, "socket_files", lambda *folders: 1 / 0)
    assert socket_search.SocketSearch([b"/"]).found() is None
