"""A batch on a real Ray cluster of this machine. One test, since a cluster takes ten seconds to start."""

import glob
import os
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from ferrule.batch.ray_pool import _connected
from ferrule.protocol.errors import UsageError
from ferrule.testing import ScriptedModel, function_call, step
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.batch.test_command import arguments, read_results, write_tasks
from tests.cli.command import Place, wait_until
from tests.cli.places import cold_place, forker, place

__all__ = ["cold_place", "forker", "place"]

ENDING = 60
"""Seconds; a cluster ends within three."""


@pytest.mark.parametrize(
    ("address", "why"),
    [("nowhere", "it is local, auto, HOST:PORT or ray://HOST:PORT"), ("localhost:x", "'x' is no port")],
)
def test_an_address_that_is_none_is_told_before_a_task_begins(place: Place, address: str, why: str) -> None:
    write_tasks(place.cwd / "tasks.jsonl", [{"id": 1, "prompt": "x"}])
    with ScriptedModel(["never"]) as model:
        done = place.run(*arguments(place, model, "--ray", address))
        assert (done.code, model.requests) == (2, [])
    assert f"--ray {address}: {why}" in done.err


def test_a_cluster_that_is_not_there_is_told(place: Place) -> None:
    write_tasks(place.cwd / "tasks.jsonl", [{"id": 1, "prompt": "x"}])
    with socket.socket() as taken, ScriptedModel(["never"]) as model:
        taken.bind(("127.0.0.1", 0))  # bound, and deaf
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = place.run(*arguments(place, model, "--ray", address))
    assert done.code == 2
    assert f"--ray {address}: no cluster answers there (Connection refused)" in done.err


@pytest.mark.parametrize(("is_left", "starts"), [(False, 3), (True, 1)])
def test_a_cluster_is_not_started_again_for_a_batch_that_was_ended(
    is_left: bool, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def init(address: str, **options: object) -> None:
        started.append(address)
        raise RuntimeError("it took too long")

    ray = SimpleNamespace(
        is_initialized=lambda: False, init=init, shutdown=lambda: None
    )  # it fails at a busy hour only
    monkeypatch.setitem(sys.modules, "ray", ray)
    with ExitStack() as ends, pytest.raises(UsageError, match="--ray local: it took too long"):
        _connected("local", ends.callback, lambda: is_left)
    assert len(started) == starts


@pytest.mark.timeout(300)
def test_tasks_on_a_cluster_survive_their_workers_and_actors(place: Place) -> None:
    count = 16
    write_tasks(place.cwd / "tasks.jsonl", [{"id": n, "prompt": "x", "check": "test -e made"} for n in range(count)])
    clusters = set(glob.glob("/tmp/ray-*"))
    with ScriptedModel(one_command) as model:
        batch = place.start(*arguments(place, model, "--ray", "local", "-n", "4"))
        try:
            results = place.cwd / "out.jsonl"
            for name in ("ferrule.batch.worker", "ray::Relay"):
                kill_one(place, name)
                wait_for_more(results)
            out, err = batch.communicate(timeout=ENDING)
        finally:
            batch.kill()
            batch.communicate()
    assert (batch.returncode, out) == (0, b""), err.decode()
    assert "16 of 16 tasks: 16 done, 16 passed, 0 failed" in err.decode()
    found = read_results(results)
    assert sorted(found) == list(range(count))
    assert {result["verdict"] for result in found.values()} == {"pass"}
    assert all(Path(result["rollout"]).stat().st_mode & 0o777 == 0o600 for result in found.values())
    assert {Path(result["rollout"]).parent for result in found.values()} == {Path(f"{results}.rollouts")}
    assert set(glob.glob("/tmp/ray-*")) <= clusters
    # The process of an actor that was killed ends by itself.
    wait_until(lambda: not list(place.home.parent.glob(".cache/ferrule/batch/*")), ENDING)
    assert not list(place.home.parent.glob(".ray"))


def one_command(request: Request) -> Simple:
    if request.outputs:
        return step("done", delay=0.3)
    return function_call("shell_command", {"command": "echo made > made"})


def kill_one(place: Place, name: str) -> None:
    wait_until(lambda: processes(place, name), ENDING)
    os.kill(processes(place, name)[0], signal.SIGKILL)


def wait_for_more(results: Path) -> None:
    before = results.stat().st_size
    wait_until(lambda: results.stat().st_size > before, ENDING)


def processes(place: Place, name: str) -> list[int]:
    """The processes of a batch's cluster with this in their command."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = f"HOME={place.home.parent}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if ours and name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
