"""`ferrule mcp-server` as a program that an MCP client starts."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.commands import mcp_server
from mcp import Client, StdioServerParameters
from tests.cli.command import COMMAND, Place
from tests.mcp_server.served import User, text_of
from tests.processes import running


def started_by(place: Place, *flags: str) -> StdioServerParameters:
    """How a client starts the server."""
    command, *arguments = (*COMMAND, *flags)
    return StdioServerParameters(command=command, args=arguments, env=place.env(), cwd=place.cwd)


def configured() -> list[list[str]]:
    """The arguments of every configuration on the page."""
    page = Path(__file__).parents[2] / "docs" / "mcp_server.md"
    blocks = map(json.loads, re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL))
    entries = [entry for block in blocks for servers in block.values() for entry in servers.values()]
    assert len(entries) >= 6 and all(entry["command"] == "ferrule" for entry in entries)
    return [entry["args"] for entry in entries]


@pytest.mark.parametrize("words", configured(), ids=" ".join)
def test_the_arguments_of_every_configuration_on_the_page_are_known(words: list[str]) -> None:
    assert words[0] == "mcp-server"
    options = mcp_server._parser().parse_args(words[1:])
    assert not options.http and (options.tools is None or not options.agent)


@pytest.mark.parametrize(("era", "number"), [("legacy", 0), ("auto", 1)])
async def test_the_sdks_client_starts_it_as_configured_and_its_end_ends_all(
    cold_place: Place, era: str, number: int
) -> None:
    mark = f": command{os.getpid()}{era}"
    words = [str(cold_place.cwd) if word.startswith("/home/me") else word for word in configured()[number]]
    server = started_by(cold_place, *words)
    async with Client(server, mode=era, elicitation_callback=User()) as client:
        result = await client.call_tool("exec_command", {"cmd": "pwd"})
        assert str(cold_place.cwd) in text_of(result)
        stubborn = {"cmd": f"{mark}; trap '' TERM HUP INT; sleep 1000; sleep 1000; :", "yield_time_ms": 250}
        assert (await client.call_tool("exec_command", stubborn)).structured_content["session_id"]
        assert running(mark)
        began = time.monotonic()
    assert not running(mark) and time.monotonic() - began < 6


def test_what_is_printed_beside_the_protocol_goes_to_standard_error(cold_place: Place) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
    ]
    typed = "".join(json.dumps({"jsonrpc": "2.0"} | line) + "\n" for line in lines)
    program = (
        "import os, sys; from ferrule.cli.main import main\n"
        "from ferrule.doors.mcp_server import stdio\n"
        "take = stdio._Traffic.take\n"
        "async def loud(self, line, *, whole):\n"
        "    print('stray', flush=True); os.system('echo child; cat')\n"
        "    await take(self, line, whole=whole)\n"
        "stdio._Traffic.take = loud\n"
        "sys.exit(main(['mcp-server']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cold_place.cwd, env=cold_place.env(), input=typed.encode(), capture_output=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]
    assert done.stderr.count(b"stray") == done.stderr.count(b"child") >= 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--tools", "no_such_tool"], "no_such_tool"),
        (["--tools", ","], "name the tools"),
        (["--http"], "--token-env"),
        (["--http", "--token-env", "NOT_SET"], "NOT_SET is not set"),
        (["--bind", "127.0.0.1:0"], "belong to --http"),
        (["--agent", "--tools", "read_file"], "--agent"),
        (["-s", "everything"], "sandbox"),
        (["-C", "nowhere"], "nowhere"),
        (["--profile", "none_such"], "none_such"),
        (["more"], "more"),
    ],
)
def test_wrong_usage_is_one_sentence(place: Place, flags: list[str], told: str) -> None:
    done = place.run("mcp-server", *flags)
    assert done.code == 2 and told in done.err and done.err.count("\n") == 1 and not done.out


@pytest.mark.parametrize("token", ["a\nb", "schlüssel"])
def test_a_token_that_no_header_can_hold_is_refused(place: Place, token: str) -> None:
    done = place.run(
        "mcp-server", "--http", "--bind", "192.0.2.1:1", "--token-env", "THE_TOKEN", env={"THE_TOKEN": token}
    )
    assert done.code == 2 and "THE_TOKEN holds" in done.err and done.err.count("\n") == 1


def test_the_inspectors_command_line_lists_and_calls(cold_place: Place) -> None:
    inspector = shutil.which("mcp-inspector")
    if inspector is None:
        pytest.skip("the MCP inspector is not installed; scripts/compat_mcp installs it and runs this test")
    command = [inspector, "--cli", *COMMAND, "mcp-server", "--tools", "exec_command"]

    def inspect(*flags: str) -> Any:
        done = subprocess.run(
            [*command, *flags],
            cwd=cold_place.cwd, env=cold_place.env(), capture_output=True, timeout=50, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    assert "exec_command" in json.dumps(inspect("--method", "tools/list"))
    called = inspect("--method", "tools/call", "--tool-name", "exec_command", "--tool-arg", "cmd=echo $((6*7))")
    assert "42" in json.dumps(called)
