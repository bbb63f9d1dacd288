"""MCP on the first try: what a person sees of servers that start slowly, badly or not at all."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule.protocol.errors import FerruleError
from ferrule.testing import ScriptedModel, function_call, message
from tests.cli.command import Done, Place
from tests.mcp.stub import loading, server
from tests.mcp.web import stub


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel([[message("done")]]) as model:
        yield model


def flags(model: ScriptedModel, settings: dict[str, Any]) -> list[str]:
    """The flags of `exec` for one server, as a person would write them."""
    keys = [f"mcp_servers.stub.{key}={json.dumps(value)}" for key, value in settings.items()]
    return ["-m", "m", "--base-url", model.base_url, *(word for key in keys for word in ("-c", key))]


def run(place: Place, model: ScriptedModel, settings: dict[str, Any], *more: str) -> Done:
    return place.run("exec", *flags(model, settings), *more, "go")


def test_servers_of_the_command_line_start_without_a_question_and_those_of_a_project_do_not(
    place: Place, model: ScriptedModel, tmp_path: Path
) -> None:
    planted = server(f"log={tmp_path / 'planted'}")
    (place.cwd / ".mcp.json").write_text(json.dumps({"mcpServers": {"planted": planted}}))
    done = run(place, model, server(f"log={tmp_path / 'named'}"))
    assert done.code == 0
    assert "mcp__stub__echo" in model.requests[0].tool_names
    assert (tmp_path / "named").exists()
    assert not (tmp_path / "planted").exists()


def test_servers_of_the_users_own_configuration_start_without_a_question(place: Place, model: ScriptedModel) -> None:
    place.home.mkdir(parents=True)
    settings = server()
    (place.home / "config.toml").write_text(
        f"[mcp_servers.stub]\ncommand = {json.dumps(settings['command'])}\nargs = {json.dumps(settings['args'])}\n"
    )
    assert place.run("exec", "-m", "m", "--base-url", model.base_url, "go").code == 0
    assert "mcp__stub__echo" in model.requests[0].tool_names


@pytest.mark.parametrize("required", [False, True])
def test_the_first_line_comes_before_the_mcp_client_is_loaded(
    place: Place, model: ScriptedModel, required: bool
) -> None:
    watched = (
        "import sys\n"
        "from ferrule.cli.main import main\n"
        "write, before = sys.stderr.write, []\n"
        "def watch(text):\n"
        "    before.append({'pydantic', 'mcp'} & set(sys.modules))\n"
        "    return write(text)\n"
        "sys.stderr.write = watch\n"
        "code = main(sys.argv[1:])\n"
        "print(len(before[0]), len(before[-1]))\n"
        "sys.exit(code)\n"
    )
    settings = {**server(), "required": required}
    done = subprocess.run(
        [sys.executable, "-c", watched, "exec", *flags(model, settings), "go"],
        cwd=place.cwd, env=place.env(), capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 2"


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_run_waits_for_a_slow_server_and_says_so(
    place: Place, model: ScriptedModel, tmp_path: Path, json_lines: bool
) -> None:
    gate = tmp_path / "gate"
    child = place.start("exec", *flags(model, server(f"gate={gate}")), *(["--json"] if json_lines else []), "go")
    assert child.stderr is not None
    for line in child.stderr:
        if b"waiting for the MCP server stub" in line:
            break
    else:
        pytest.fail("nothing was said")
    assert not model.requests
    gate.touch()
    assert child.communicate(timeout=50)[0]
    assert child.returncode == 0
    assert "mcp__stub__echo" in model.requests[0].tool_names


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (server("crash-at-start"), ["exited with code 3", "no license found", "run its command yourself"]),
        (loading(startup_timeout=2), ["within 2 seconds", "still loading", "with startup_timeout"]),
        ({"command": "npx-missing"}, ["program not found: npx-missing", "install it"]),
        ({"url": "http://127.0.0.1:9/mcp"}, ["cannot be reached", "check its url"]),
    ],
    ids=["dies", "hangs", "missing", "unreachable"],
)
async def test_a_required_server_that_cannot_start_is_an_error_with_a_next_step(
    model: ScriptedModel, tmp_path: Path, settings: dict[str, Any], said: list[str]
) -> None:
    servers = {"stub": {**settings, "required": True}}
    agent = Agent("m", tools=[], base_url=model.base_url, cwd=tmp_path, mcp_config={"mcpServers": servers})
    with pytest.raises(FerruleError, match="MCP server stub ") as failed:
        await agent.run("go")
    for words in [*said, "(it is required)"]:
        assert words in str(failed.value)
    assert not model.requests


async def test_a_required_server_that_wants_a_login_says_how(model: ScriptedModel, tmp_path: Path) -> None:
    with stub(lambda asked: (401, {}, b"")) as url:
        servers = {"stub": {"url": url, "required": True}}
        agent = Agent("m", tools=[], base_url=model.base_url, cwd=tmp_path, mcp_config={"mcpServers": servers})
        with pytest.raises(FerruleError, match=r"needs a login \(HTTP 401\): run `ferrule mcp login stub`"):
            await agent.run("go")
    assert not model.requests


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_required_server_that_dies_ends_the_run_before_the_model_is_asked(
    place: Place, model: ScriptedModel, json_lines: bool
) -> None:
    settings = server("noise", "crash-at-start", required=True)
    failed = run(place, model, settings, *(["--json"] if json_lines else []))
    assert failed.code == 1
    assert not model.requests
    error = failed.err.splitlines()[-1]
    assert error.startswith("ferrule: MCP server stub exited with code 3")
    assert "no license found" in error
    assert "goes on without" not in failed.err
    if json_lines:
        assert [line["type"] for line in failed.lines] == ["error", "turn.failed"]


def test_a_server_that_is_not_required_is_told_and_the_run_goes_on(place: Place, model: ScriptedModel) -> None:
    done = run(place, model, server("crash-at-start"))
    assert done.code == 0
    (warning,) = [line for line in done.err.splitlines() if line.startswith("warning: MCP server stub ")]
    assert "no license found; the session goes on without its tools: run its command yourself" in warning


def test_an_interrupt_while_a_server_is_waited_for_ends_the_run(place: Place, model: ScriptedModel) -> None:
    child = place.start("exec", *flags(model, server("silent", required=True)), "go")
    assert child.stderr is not None
    assert b"waiting for the MCP server stub" in child.stderr.readline()
    child.terminate()
    child.communicate(timeout=50)
    assert child.returncode == 130
    assert not model.requests


def test_one_call_waits_for_its_server_and_tells_of_one_that_fails(place: Place, tmp_path: Path) -> None:
    settings = server(f"gate={tmp_path / 'gate'}")
    words = [f"mcp_servers.stub.{key}={json.dumps(value)}" for key, value in settings.items()]
    child = place.start("call", *(f"-c{word}" for word in words), "mcp__stub__echo", '{"text": "a"}')
    assert child.stderr is not None
    assert b"waiting for the MCP server stub" in child.stderr.readline()
    (tmp_path / "gate").touch()
    assert child.communicate(timeout=50)[0] == b"ECHO: a\n"
    dead = place.run("call", "-c", "mcp_servers.stub.command='npx-missing'", "mcp__stub__echo")
    assert dead.code == 1
    assert "program not found: npx-missing" in dead.err


def calls(model: ScriptedModel) -> None:
    """Play a call of a tool that is not annotated as read-only."""
    model.add([function_call("mcp__stub__write", {"text": "x"})], "done")


@pytest.mark.parametrize(
    ("more", "runs"),
    [({}, True), ({"approval": "auto"}, False), ({"approval": "prompt"}, False), ({"approval": "allow"}, True)],
)
def test_a_server_of_the_command_line_needs_no_second_permission(
    place: Place, more: dict[str, Any], runs: bool
) -> None:
    with ScriptedModel([]) as model:
        calls(model)
        assert run(place, model, server() | more).code == 0
        assert ("requires approval" not in model.requests[1].outputs[0].text) is runs


def test_a_server_of_the_configuration_does(place: Place) -> None:
    place.home.mkdir(parents=True)
    settings = server()
    (place.home / "config.toml").write_text(
        f"[mcp_servers.stub]\ncommand = {json.dumps(settings['command'])}\nargs = {json.dumps(settings['args'])}\n"
    )
    with ScriptedModel([]) as model:
        calls(model)
        assert place.run("exec", "-m", "m", "--base-url", model.base_url, "go").code == 0
        assert "requires approval" in model.requests[1].outputs[0].text


async def test_a_server_of_the_users_code_needs_no_second_permission(tmp_path: Path) -> None:
    asked: list[Any] = []
    with ScriptedModel([]) as model:
        calls(model)
        calls(model)
        servers = {"mcpServers": {"stub": server()}}
        common: dict[str, Any] = {"base_url": model.base_url, "cwd": tmp_path, "mcp_config": servers}
        await Agent("m", **common).run("go")
        assert "requires approval" not in model.requests[1].outputs[0].text

        def refuse(question: Any) -> bool:
            asked.append(question)
            return False

        await Agent("m", on_approval=refuse, **common).run("go")
        assert len(asked) == 1, "somebody who can be asked is asked"
