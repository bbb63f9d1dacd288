"""Script files, the command that serves one, and the pytest fixture."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import ferrule.testing
from ferrule.testing import (
    Failed,
    Framing,
    RandomChunks,
    Script,
    ScriptedModel,
    ScriptError,
    Stall,
    StreamError,
    Usage,
    function_call,
    hang_up,
    http_error,
    message,
    raw,
    step,
)
from ferrule.testing.defects import same_index
from tests.testing.client import USER, Client, call, output


def read(tmp_path: Path, data: object) -> Script:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return Script.from_json(path)


EVERY_FORM = {
    "repeat": True,
    "steps": [
        "hi",
        {"type": "function_call", "name": "f", "arguments": {"a": 1}},
        [{"type": "message", "text": "one", "phase": "commentary"}, "two"],
        {
            "items": ["x"],
            "expect": "found",
            "usage": {"input_tokens": 3, "output_tokens": 4},
            "end": "max_output_tokens",
            "delta_chars": 2,
            "edits": ["same_index"],
            "framing": {"newline": "\r\n", "bom": True},
            "delay": 0.5,
            "chunks": {"seed": 7, "most": 9},
            "pace": 1,
            "stall": {"at": "[DONE]", "seconds": 2},
            "cut_after": 100,
        },
        {"items": [], "end": {"failed": "boom"}, "chunks": [1, 2]},
        {"items": [], "end": {"stream_error": "no", "code": 429, "nested": True, "resets_in_seconds": 9}},
        {"error": "slow down", "status": 429, "headers": {"retry-after": "7"}},
        {"raw": "data: x\n\n", "chunks": 1},
        {"hang_up": True},
    ],
}
EVERY_STEP = Script(
    (
        step("hi"),
        step(function_call("f", {"a": 1})),
        step(message("one", phase="commentary"), "two"),
        step(
            "x",
            expect="found",
            usage=Usage(3, 4),
            end="max_output_tokens",
            delta_chars=2,
            edits=[same_index],
            framing=Framing(newline="\r\n", bom=True),
            delay=0.5,
            chunks=RandomChunks(7, 9),
            pace=1.0,
            stall=Stall("[DONE]", 2.0),
            cut_after=100,
        ),
        step(end=Failed("boom"), chunks=[1, 2]),
        step(end=StreamError("no", code=429, nested=True, more={"resets_in_seconds": 9})),
        http_error(429, "slow down", headers={"retry-after": "7"}),
        raw(b"data: x\n\n", chunks=1),
        hang_up(),
    ),
    repeat=True,
)


def test_every_form_of_a_step(tmp_path: Path) -> None:
    assert read(tmp_path, EVERY_FORM) == EVERY_STEP


def test_expectations_in_a_file(tmp_path: Path) -> None:
    expect = [{"regex": "^a"}, "b"]
    by_call = {"c1": {"regex": "x"}}
    script = read(tmp_path, [{"items": ["1"], "expect": expect}, {"items": ["2"], "expect": by_call}])
    assert script.steps == (
        step("1", expect=[re.compile("^a"), "b"]),
        step("2", expect={"c1": re.compile("x")}),
    )


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"stps": []}, 'a script is {"steps": [...]}'),
        ({"steps": [], "x": 1}, "unknown key 'x' in the script; known: repeat, steps"),
        (["a", {"items": ["b"], "expct": "c"}], "step 2: unknown key 'expct' in a step"),
        ([{"items": "b"}], "step 1: `items` is a list of items"),
        ([{"items": [{"name": "f"}]}], "step 1: an item is an object with a `type`"),
        ([{"items": [3]}], "step 1: an item is an object or a text, not 3"),
        ([3], "step 1: expected a text"),
        ([{"items": [], "expect": 3}], "step 1: an expectation is a text"),
        ([{"items": [], "expect": {"regex": "("}}], "step 1: `regex` '('"),
        ([{"items": [], "usage": {"tokens": 3}}], "step 1: unknown key 'tokens' in `usage`"),
        ([{"items": [], "end": "soon"}], "step 1: `end` is completed"),
        ([{"items": [], "chunks": 0}], "step 1: a chunk has at least one byte"),
        ([{"items": [], "delay": "1"}], "step 1: `delay` is a number of seconds"),
        ([{"items": [], "stall": 3}], "step 1: `stall` is"),
        ([{"items": [], "cut_after": -1}], "step 1: expected a whole number"),
        ([{"items": [], "edits": ["nope"]}], "step 1: an edit is"),
        ([{"items": [], "framing": {"crlf": True}}], "step 1: unknown key 'crlf' in `framing`"),
        ([{"error": "x", "headers": 3}], "step 1: `headers` is an object"),
    ],
)
def test_a_mistake_is_named_with_its_step(tmp_path: Path, data: object, complaint: str) -> None:
    with pytest.raises(ScriptError) as caught:
        read(tmp_path, data)
    assert str(caught.value).startswith(f"{tmp_path / 'script.json'}: ")
    assert complaint in str(caught.value)


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="No such file"):
        Script.from_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ScriptError, match=r"bad\.json"):
        Script.from_json(tmp_path / "bad.json")


def test_the_command_serves_a_script_and_logs_what_it_was_asked(tmp_path: Path) -> None:
    read(tmp_path, [{"type": "function_call", "name": "f"}, {"items": ["done"], "expect": "yes"}])
    command = [sys.executable, "-m", "ferrule.testing", "script.json", "--log", "log.jsonl"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and server.stderr is not None
            assert select.select([server.stdout], [], [], 20)[0], "the server did not start"
            greeting = server.stdout.readline()
            port = re.fullmatch(r"scripted model at http://127\.0\.0\.1:(\d+)/v1\n", greeting)
            assert port is not None
            with Client(SimpleNamespace(port=int(port[1]))) as client:  # type: ignore[arg-type]
                client.responses([USER])
                assert client.responses([USER, call("call_1"), output("call_1", "no")])["error"]
            lines = [server.stdout.readline() for _ in range(2)]
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(20) == 1, server.stderr.read()
        assert "step 2: expected an output with this text" in server.stderr.read()
    assert lines == ["POST /v1/responses 200 step 1\n", "POST /v1/responses 400 no step\n"]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["status"] for entry in logged] == [200, 400]
    assert logged[0]["arrived_ns"] < logged[0]["finished_ns"] < logged[1]["arrived_ns"]


def test_the_command_refuses_a_bad_script(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"steps": [3]}')
    command = [sys.executable, "-m", "ferrule.testing", "bad.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "bad.json: step 1: expected a text, an item, a list of items or an object, not 3\n"


def test_the_fixture_fails_a_test_whose_request_did_not_fit(tmp_path: Path) -> None:
    (tmp_path / "test_agent.py").write_text(
        "import urllib.request, urllib.error\n"
        "def ask(model):\n"
        "    try:\n"
        "        urllib.request.urlopen(model.base_url + '/responses', b'{\"input\": \"x\"}').read()\n"
        "    except urllib.error.HTTPError as error:\n"
        "        error.close()\n"
        "def test_fits(scripted_model):\n"
        "    scripted_model.add('hello')\n"
        "    ask(scripted_model)\n"
        "def test_does_not(scripted_model):\n"
        "    ask(scripted_model)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ferrule.testing.pytest_plugin", "test_agent.py"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert "2 passed, 1 error" in done.stdout
    assert "step 1: the script has only 0 steps" in done.stdout


def test_a_taken_port_is_told_at_the_start() -> None:
    with ScriptedModel() as model, pytest.raises(OSError, match=r"in use"):
        ScriptedModel(port=model.port).start()


def test_exactly_the_listed_names_are_public() -> None:
    public = {name for name in vars(ferrule.testing) if not name.startswith(("_", "@"))}  # pytest puts @ names in
    modules = {path.stem for path in Path(ferrule.testing.__path__[0]).glob("*.py")}
    assert public - (modules - {"defects"}) == set(ferrule.testing.__all__)


def test_the_import_is_cheap() -> None:
    code = (
        "import sys, ferrule.testing; print(sorted({'pydantic', 'httpx2', 'h11', 'openai', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
