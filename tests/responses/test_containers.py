"""`code_interpreter` and `shell` in real containers, over both upstream wires."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ferrule.containers import HostLimits, LocalHost
from ferrule.hosted.code_interpreter import CodeInterpreter
from ferrule.hosted.containers import ClientContainers
from ferrule.hosted.shell import HostedShell
from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.store import Store
from ferrule.testing import ScriptedModel, function_call
from tests.responses.serving import Json, Served, asked, check_stream, events_of, kinds, served

PYTHON: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
SHELL: Json = {"type": "shell", "environment": {"type": "container_auto"}}
OUTPUTS = ["code_interpreter_call.outputs"]


@asynccontextmanager
async def with_containers(
    tmp_path: Path, model: ScriptedModel, wire: Wire, *, seconds: float = 60
) -> AsyncIterator[Served]:
    """An engine that runs both tools."""
    host = LocalHost.open(tmp_path / "containers", limits=HostLimits())
    store = await Store.open(tmp_path / "gateway.db")
    containers = ClientContainers(host, store, idle_seconds=1200)
    tools = CodeInterpreter(containers, cell_seconds=seconds), HostedShell(containers, command_seconds=seconds)
    async with served(tmp_path, model, wire, hosted=tools, store=store) as here:
        yield here
    await host.aclose()


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire) -> AsyncIterator[Served]:
    async with with_containers(tmp_path, model, wire) as here:
        yield here


def cell(code: str) -> Json:
    return function_call("python", {"code": code})


async def test_python_keeps_its_state_and_shows_what_it_did(here: Served) -> None:
    here.model.add([cell("x = 6\nprint('set')")], [cell("x * 7")], "It is 42.")
    ledger = await here.engine.open(asked(tools=[PYTHON], include=OUTPUTS))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    first, second, _ = ledger.object["output"]
    assert [first["outputs"], second["outputs"]] == [
        [{"type": "logs", "logs": "set"}],
        [{"type": "logs", "logs": "42"}],
    ]
    assert first["container_id"] == second["container_id"] and first["status"] == "completed"
    assert kinds(events)[2:8] == [
        "output_item.added",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
    ]
    here.model.add([cell("x")], "Still.")
    more = await here.ask(input="and now?", tools=[PYTHON], previous_response_id=ledger.id)
    assert here.model.last_request.outputs[-1].text == "6"
    assert more.object["output"][0]["outputs"] is None
    assert more.object["output"][0]["container_id"] == first["container_id"]
    with pytest.raises(ApiError, match="there is no container") as raised:
        await here.ask(owner="them", tools=[{"type": "code_interpreter", "container": first["container_id"]}])
    assert (raised.value.status, raised.value.param) == (404, "tools[0].container")


async def test_commands_run_and_share_files_with_python(here: Served) -> None:
    who = "pwd; whoami; tty; grep NoNewPrivs /proc/self/status"
    commands = ["echo out; echo err >&2; exit 3", who, "echo 5 > n.txt"]
    here.model.add([function_call("shell", {"commands": commands})], [cell("open('n.txt').read()")], "Done.")
    ledger = await here.engine.open(asked(tools=[SHELL, PYTHON], include=OUTPUTS))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    call, output, python, _ = ledger.object["output"]
    assert call["type"] == "shell_call" and call["action"]["commands"] == commands
    assert call["environment"] == {"type": "container_reference", "container_id": python["container_id"]}
    assert output["output"][0] == {"stdout": "out\n", "stderr": "err\n", "outcome": {"type": "exit", "exit_code": 3}}
    assert output["output"][1]["stdout"] == "/mnt/data\nuser\nnot a tty\nNoNewPrivs:\t1\n"
    assert python["outputs"] == [{"type": "logs", "logs": "'5\\n'"}]
    sent_back = [{"role": "user", "content": "hi"}, *ledger.object["output"][:3]]
    here.model.add([cell("open('n.txt').read()")], "Again.")
    again = await here.ask(input=sent_back, store=False, tools=[SHELL, PYTHON], include=OUTPUTS)
    assert again.object["output"][0]["outputs"] == python["outputs"]
    assert [seen.text for seen in here.model.last_request.outputs][-2:] == ["'5\\n'", "'5\\n'"]


async def test_what_takes_too_long_is_ended_and_says_so(tmp_path: Path, model: ScriptedModel) -> None:
    model.add(
        [cell("x = 1\nwhile True: pass")],
        [function_call("shell", {"commands": ["echo begun; sleep 60"]})],
        [cell("x")],
        "Done.",
    )
    async with with_containers(tmp_path, model, "chat", seconds=0.5) as here:
        ledger = await here.ask(tools=[PYTHON, SHELL], include=OUTPUTS)
    endless, _, shell, after, _ = ledger.object["output"]
    assert endless["status"] == "incomplete" and "KeyboardInterrupt" in endless["outputs"][0]["logs"]
    assert shell["output"][0] == {"stdout": "begun\n", "stderr": "", "outcome": {"type": "timeout"}}
    assert after["outputs"] == [{"type": "logs", "logs": "1"}]
