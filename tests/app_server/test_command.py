"""`ferrule app-server` as a program."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ferrule.testing import ScriptedModel
from tests.app_server.client import HELLO
from tests.cli.command import COMMAND, Place
from tests.cli.played import execute
from tests.processes import running


def started(place: Place, *flags: str) -> "subprocess.Popen[bytes]":
    words = [*COMMAND, "app-server", *flags]
    return subprocess.Popen(
        words, cwd=place.cwd, env=place.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ask(program: "subprocess.Popen[bytes]", number: int, method: str, **params: Any) -> Any:
    """Ask, and return the answer."""
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
    program.stdin.flush()
    while True:
        heard = json.loads(program.stdout.readline())
        if heard.get("id") == number:
            return heard["result"]


@pytest.mark.parametrize("end", [None, signal.SIGHUP], ids=["input", "HUP"])
def test_its_end_ends_what_runs(cold_place: Place, end: signal.Signals | None) -> None:
    mark = f": app_server_{cold_place.cwd.parent.name}"
    with ScriptedModel([execute(f"{mark}; trap '' TERM HUP INT; sleep 1000; :", 30_000), "Done."]) as model:
        program = started(cold_place, "--base-url", model.base_url, "--wire", "responses", "-m", "gpt-5.5")
        ask(program, 1, "initialize", **HELLO)
        thread = ask(program, 2, "thread/start")["thread"]["id"]
        ask(program, 3, "turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
        deadline = time.monotonic() + 20
        while not running(mark):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        began = time.monotonic()
        if end is None:
            assert program.stdin is not None
            program.stdin.close()
        else:
            program.send_signal(end)
        code = program.wait(20)
        assert time.monotonic() - began < 6 and not running(mark)
        assert code == (0 if end is None else 130)
        assert program.stderr is not None and not program.stderr.read()
        for stream in (program.stdin, program.stdout, program.stderr):
            if stream is not None:
                stream.close()


def test_wrong_usage_is_a_sentence_and_the_schema_is_written(place: Place, tmp_path: Path) -> None:
    for flags, words in (
        (["--bind", "127.0.0.1:0"], "belong to --websocket"),
        (["--websocket"], "needs --token-env"),
        (["--websocket", "--token-env", "NO_SUCH_TOKEN"], "is not set"),
        (["-C", "/nonexistent"], "not a directory"),
        (["--schema", "/nonexistent/schema.json"], "cannot be written"),
    ):
        done = place.run("app-server", *flags)
        assert done.code == 2 and words in done.err and len(done.err.splitlines()) == 1
    assert place.run("app-server", "--schema", str(tmp_path / "schema.json")).code == 0
    assert json.loads((tmp_path / "schema.json").read_bytes())["definitions"]["Thread"]
