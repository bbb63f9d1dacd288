"""`ferrule serve` and `ferrule serve keys` as commands."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect

from ferrule.cli.main import main
from ferrule.store import Store
from ferrule.testing import ScriptedModel
from tests.cli.command import Place
from tests.gateway.served import Served, new_place, ready, serving


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return new_place(tmp_path)


def add_key(place: Place, name: str) -> str:
    """As the command does, in this process."""

    async def add() -> str:
        async with await Store.open(place.home / "gateway" / "state.sqlite", shared=True) as store:
            return await store.add_key(name)

    return asyncio.run(add())


class Command:
    """Commands of this process, which are quick where they come to nothing."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def refused(self, *arguments: str) -> str:
        """Run one that is wrongly used; return the sentence that it says."""
        assert main(["serve", *arguments]) == 2
        said = self._capsys.readouterr()
        assert said.out == "" and len(said.err.splitlines()) == 1, said
        return said.err


@pytest.fixture
def command(place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    for name, value in place.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(place.cwd)
    return Command(capsys)


def test_it_says_one_line_and_ends_on_a_signal_with_all_stored(place: Place, model: ScriptedModel) -> None:
    held = {"model": "m", "input": "hold"}
    with serving(place, model.base_url) as gateway:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", gateway.url)
        kept = gateway.create()["id"]
        request = urllib.request.Request(
            gateway.url + "/responses",
            json.dumps(held | {"stream": True}).encode(),
            {"content-type": "application/json"},
        )
        with (
            urllib.request.urlopen(request, timeout=30) as stream,
            connect(gateway.url.replace("http", "ws") + "/responses") as line,
        ):
            first = stream.readline() + stream.readline()
            cut = json.loads(first.split(b"data: ")[1])["response"]["id"]
            while b"delta" not in stream.readline():
                pass
            line.send(json.dumps({"type": "response.create"} | held))
            while "delta" not in line.recv(timeout=30):
                pass
            assert gateway.stop(signal.SIGINT) == (0, "")
            assert stream.read().endswith(b"data: [DONE]\n\n")
            assert not [event for event in line if '"response.completed"' in event] and line.close_code == 1001
    state = place.home / "gateway"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in state.iterdir())
    with serving(place, model.base_url) as again:
        assert again.ask("GET", f"/responses/{kept}").json["status"] == "completed"
        assert again.ask("GET", f"/responses/{cut}").json["status"] == "cancelled"


def test_other_machines_need_a_key(place: Place, model: ScriptedModel, command: Command) -> None:
    said = command.refused("--bind", "0.0.0.0:0", "--base-url", model.base_url)
    assert "ferrule serve keys add NAME" in said
    key = add_key(place, "ann")
    process = place.start("serve", "--bind", "0.0.0.0:0", "--base-url", model.base_url)
    try:
        gateway = Served(process, place, ready(process).replace("0.0.0.0", "127.0.0.1"))
        assert gateway.ask("GET", "/models").status == 401
        assert gateway.ask("GET", "/models", key=key).status == 200
        assert main(["serve", "keys", "remove", "ann"]) == 0
        assert gateway.ask("GET", "/models").status == 401
        assert gateway.ask("GET", "/models", key=key).status == 401
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def shared(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str, str]]:
    """A gateway with the keys of two projects, whose responses are limited to two at once."""
    place = new_place(tmp_path_factory.mktemp("keys"))
    with serving(place, model.base_url, "-c", "gateway.max_concurrent=2") as gateway:
        assert gateway.ask("GET", "/models").status == 200
        yield gateway, add_key(place, "ann"), add_key(place, "bob")


def test_keys_are_needed_as_soon_as_there_are_any(
    shared: tuple[Served, str, str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, ann, _ = shared
    for key in (None, "", "wrong", ann[:-1], ann + "x"):
        answer = gateway.ask("GET", "/models", key=key)
        assert answer.status == 401 and answer.error["code"] == "invalid_api_key"
    assert gateway.ask("GET", "/models", key=ann).status == 200
    assert gateway.place.run("serve", "keys", "list").out == "ann\nbob\n"
    made = gateway.place.run("serve", "keys", "add", "eve")
    assert gateway.ask("GET", "/models", key=made.out.split()[-1]).status == 200
    assert gateway.place.run("serve", "keys", "remove", "eve").code == 0
    assert gateway.ask("GET", "/models", key=made.out.split()[-1]).status == 401
    monkeypatch.setenv("FERRULE_HOME", str(gateway.place.home))
    assert "'ann'" in command.refused("keys", "add", "ann")
    assert "keys list" in command.refused("keys", "remove", "eve")


def test_a_key_that_is_gone_opens_no_response_on_an_open_connection(shared: tuple[Served, str, str]) -> None:
    gateway = shared[0]
    headers = {"authorization": f"Bearer {add_key(gateway.place, 'joe')}"}
    ask = json.dumps({"type": "response.create", "model": "m", "input": "hi", "store": False})
    with connect(gateway.url.replace("http", "ws") + "/responses", additional_headers=headers) as line:
        line.send(ask)
        while json.loads(line.recv(30))["type"] != "response.completed":
            pass
        assert gateway.place.run("serve", "keys", "remove", "joe").code == 0
        line.send(ask)
        assert json.loads(line.recv(30))["error"]["code"] == "invalid_api_key"


def test_a_key_sees_only_its_own(shared: tuple[Served, str, str]) -> None:
    gateway, ann, bob = shared
    made = gateway.ask("POST", "/responses", {"model": "m", "input": "hi"}, key=ann).json["id"]
    assert gateway.ask("GET", f"/responses/{made}", key=ann).status == 200
    for method, path in (
        ("GET", f"/responses/{made}"),
        ("DELETE", f"/responses/{made}"),
        ("POST", f"/responses/{made}/cancel"),
        ("GET", f"/responses/{made}/input_items"),
        ("GET", f"/responses/{made}?stream=true"),
    ):
        assert gateway.ask(method, path, key=bob).status == 404, path
    on = {"model": "m", "input": "hi", "previous_response_id": made}
    assert gateway.ask("POST", "/responses", on, key=bob).error["code"] == "previous_response_not_found"
    assert gateway.ask("GET", f"/responses/{made}", key=ann).json["status"] == "completed"


def test_a_key_has_so_many_responses_at_once(shared: tuple[Served, str, str]) -> None:
    gateway, ann, bob = shared
    held = {"model": "m", "input": "hold", "background": True}
    running = [gateway.ask("POST", "/responses", held, key=ann).json["id"] for _ in range(2)]
    refused = gateway.ask("POST", "/responses", held, key=ann)
    assert refused.status == 429 and refused.error["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 1
    assert gateway.ask("POST", "/responses", {"model": "m", "input": "hi"}, key=bob).status == 200
    for made in running:
        assert gateway.ask("POST", f"/responses/{made}/cancel", key=ann).json["status"] == "cancelled"
    assert gateway.ask("POST", "/responses", {"model": "m", "input": "hi"}, key=ann).status == 200


def test_one_process_has_the_store_and_one_has_the_port(
    shared: tuple[Served, str, str], model: ScriptedModel, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, *_ = shared
    upstream = "--base-url", model.base_url
    assert "--bind" in command.refused("--bind", f"127.0.0.1:{gateway.port}", *upstream)
    monkeypatch.setenv("FERRULE_HOME", str(gateway.place.home))
    assert "stop that one" in command.refused("--bind", "127.0.0.1:0", *upstream)


def test_it_takes_more_connections_than_systems_begin_with(place: Place, model: ScriptedModel) -> None:
    few = resource.getrlimit(resource.RLIMIT_NOFILE)
    if few[1] != resource.RLIM_INFINITY and few[1] < 512:
        pytest.skip("this system allows so few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, few[1]))
    try:
        process = place.start("serve", "--bind", "127.0.0.1:0", "--base-url", model.base_url)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, few)
    try:
        gateway = Served(process, place, ready(process))
        open_ones = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(300)]
        assert gateway.create()["status"] == "completed"
        for connection in open_ones:
            connection.close()
    finally:
        process.kill()
        process.communicate()


def test_a_wrong_start_is_one_sentence(command: Command) -> None:
    assert "127.0.0.1:8787" in command.refused("--bind", "nowhere")
    assert "--bind" in command.refused("--bind", "198.51.100.1:1", "--base-url", "http://127.0.0.1:1/v1")
    assert "--base-url" in command.refused()
    assert "add NAME" in command.refused("keys")
    assert "without spaces" in command.refused("keys", "add", "a b")
    assert "gateway.bind" in command.refused("-c", "gateway.bind=7")
    assert "see ferrule serve --help" in command.refused("--nothing")


def test_without_the_extra_it_says_what_to_install(place: Place, tmp_path: Path) -> None:
    for module in ("sqlalchemy", "uvicorn", "starlette"):
        folder = tmp_path / module
        folder.mkdir()
        (folder / f"{module}.py").write_text(f"raise ModuleNotFoundError('no {module}', name={module!r})\n")
        path = os.pathsep.join([str(folder), place.env()["PYTHONPATH"]])
        done = place.run("serve", "--base-url", "http://127.0.0.1:1/v1", env={"PYTHONPATH": path})
        assert done.code == 2 and "ferrule[gateway]" in done.err, done.err


def test_no_other_command_loads_any_of_it() -> None:
    script = (
        "import sys, ferrule, ferrule.cli.commands.exec, ferrule.cli.commands.serve\n"
        "found = {'starlette', 'uvicorn', 'sqlalchemy', 'websockets', 'httptools'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
