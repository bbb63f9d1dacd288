"""Containers and their files by the SDK, and the two tools that run in them."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request, call_output
from ferrule.testing.steps import Simple
from tests.gateway.served import Served, new_place, serving


def does(request: Request) -> Simple:
    """Run what the user said: a command after `$`, else Python; then tell what came out."""
    if call_output(request.items[-1]) is not None:
        return f"It said {request.outputs[-1].text} sandbox:/mnt/data/made.txt"
    text = request.user_text.rpartition("\n")[2] if request.outputs else request.user_text
    if text.startswith("$"):
        return function_call("shell", {"commands": [text[1:]]})
    return function_call("python", {"code": text})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway of its own: its model runs code."""
    with (
        ScriptedModel(does) as model,
        serving(new_place(tmp_path_factory.mktemp("containers")), model.base_url) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def test_a_container_is_made_listed_and_removed(client: OpenAI) -> None:
    made = client.containers.create(
        name="mine", memory_limit="4g", expires_after={"anchor": "last_active_at", "minutes": 5}
    )
    assert (made.object, made.status, made.name, made.memory_limit) == ("container", "running", "mine", "4g")
    plain = client.containers.create(name="plain")
    assert plain.memory_limit == "1g" and plain.expires_after is not None and plain.expires_after.minutes == 20
    big = client.containers.create(name="big", memory_limit="64g").model_dump()
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (big["memory_limit"], big.get("memory_bytes", 64 << 30)) == ("64g", min(most, 64 << 30))
    assert "memory_bytes" not in made.model_dump()
    assert made.expires_after is not None and made.expires_after.minutes == 5
    assert client.containers.retrieve(made.id).id == made.id
    assert made.id in [one.id for one in client.containers.list()]
    client.containers.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.containers.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as raised:
        client.containers.create(name="x", memory_limit="2g")  # type: ignore[arg-type]
    assert raised.value.param == "memory_limit"


def test_files_go_in_and_come_out(client: OpenAI) -> None:
    stored = client.files.create(file=("../b c.csv", io.BytesIO(b"a,b\n1,2\n")), purpose="user_data")
    made = client.containers.create(name="files", file_ids=[stored.id])
    given = client.containers.files.create(made.id, file=("t.txt", io.BytesIO(b"hello")))
    assert (given.path, given.source, given.bytes) == ("/mnt/data/t.txt", "user", 5)
    again = client.containers.files.create(made.id, file_id=stored.id)
    assert again.path == "/mnt/data/b c_2.csv"
    reply = client.responses.create(
        model="m",
        input="import os; open('made.txt', 'w').write('x' * 9); os.mkfifo('trap'); os.symlink('/etc/passwd', 'l')"
        "; open(b'n\\xff', 'w').close(); os.chmod('.', 0o500)",
        tools=[{"type": "code_interpreter", "container": made.id}],
    )
    assert reply.output[0].type == "code_interpreter_call" and reply.output[0].container_id == made.id
    said = reply.output[-1]
    assert said.type == "message" and said.content[0].type == "output_text"
    (cited,) = said.content[0].annotations
    assert cited.type == "container_file_citation" and cited.container_id == made.id
    assert said.content[0].text[cited.start_index : cited.end_index] == "sandbox:/mnt/data/made.txt"
    listed = {file.path: file for file in client.containers.files.list(made.id)}
    names = ("b c.csv", "b c_2.csv", "made.txt", "n\ufffd", "t.txt")
    assert sorted(listed) == [f"/mnt/data/{name}" for name in names]
    odd = listed["/mnt/data/n\ufffd"]
    assert client.containers.files.retrieve(odd.id, container_id=made.id).path == odd.path
    found = listed["/mnt/data/made.txt"]
    assert (found.source, found.bytes, found.id) == ("assistant", 9, cited.file_id)
    assert client.containers.files.content.retrieve(found.id, container_id=made.id).read() == b"x" * 9
    client.containers.files.delete(found.id, container_id=made.id)
    with pytest.raises(openai.NotFoundError):
        client.containers.files.content.retrieve(found.id, container_id=made.id)
    with pytest.raises(openai.NotFoundError):
        client.containers.files.create(made.id, file_id="file-none")


def test_files_that_a_later_request_names_come_into_the_conversations_container(client: OpenAI) -> None:
    ids = [client.files.create(file=(name, name.encode()), purpose="user_data").id for name in ("a", "b")]

    def listed(files: list[str], before: str | None = None) -> tuple[str, list[str]]:
        tool: Any = {"type": "shell", "environment": {"type": "container_auto", "file_ids": files}}
        script = "$ls; rm -f a"
        reply = client.responses.create(model="m", input=script, tools=[tool], previous_response_id=before)
        output = reply.output[1]
        assert output.type == "shell_call_output"
        return reply.id, output.output[0].stdout.split()

    first, names = listed(ids[:1])
    assert names == ["a"]
    second, names = listed(ids, first)  # one that it had and has removed is not brought again
    assert names == ["b"]
    assert listed([*ids, *ids], second)[1] == ["b"]


def test_a_stream_of_both_tools_is_what_the_sdk_takes(client: OpenAI) -> None:
    for text, tool, kinds in (
        ("1 + 1", {"type": "code_interpreter", "container": {"type": "auto"}}, ["code_interpreter_call", "message"]),
        (
            "$echo hi; cat none",
            {"type": "shell", "environment": {"type": "container_auto"}},
            ["shell_call", "shell_call_output", "message"],
        ),
    ):
        with client.responses.stream(model="m", input=text, tools=[tool]) as stream:  # type: ignore[list-item]
            for _ in stream:
                pass
            final = stream.get_final_response()
        assert [item.type for item in final.output] == kinds
    said = final.output[2]
    assert said.type == "message" and said.content[0].type == "output_text" and said.content[0].annotations == []
    output = final.output[1]
    assert output.type == "shell_call_output" and output.output[0].stdout == "hi\n"
    assert "No such file" in output.output[0].stderr


def test_what_cannot_be_is_refused_with_its_field(client: OpenAI) -> None:
    for tool, param in (
        ({"type": "code_interpreter", "container": "cntr_none"}, "tools[0].container"),
        ({"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"]}}, "tools[0].container.file_ids"),
        (
            {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "2g"}},
            "tools[0].container.memory_limit",
        ),
        (
            {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_none"}},
            "tools[0].environment.container_id",
        ),
    ):
        with pytest.raises(openai.APIStatusError) as raised:
            client.responses.create(model="m", input="1", tools=[tool])  # type: ignore[list-item]
        body = raised.value.body
        assert isinstance(body, dict) and body["param"] == param


def test_items_that_a_client_made_up_do_no_harm(gateway: Served) -> None:
    call = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_none"}
    for items, status in (
        ([call | {"outputs": ["x", 1, None]}], 200),
        ([call | {"outputs": [{"type": "logs", "logs": {"a": 1}}]}], 200),
        ([call | {"outputs": None}], 200),
        ([call | {"outputs": "x"}], 400),
        ([call | {"code": 5}], 400),
        ([{"type": "shell_call", "call_id": "c", "action": {"commands": ["x"]}, "environment": []}], 400),
        ([{"type": "shell_call_output", "call_id": "none", "output": [{"stdout": "x", "outcome": "x"}]}], 400),
    ):
        for tools in ([], [{"type": "code_interpreter", "container": {"type": "auto"}}]):
            body = {"model": "m", "input": [*items, {"role": "user", "content": "1 + 1"}], "tools": tools}
            answer = gateway.ask("POST", "/responses", body)
            assert answer.status == status, (items, answer.body)
            assert status == 200 or answer.error["param"].startswith("input")


def test_names_that_no_header_can_hold_do_no_harm(gateway: Served) -> None:
    kinds = ["漢字", "a\r\nx-evil: 1", *(f"t{number}" * 40 for number in range(500))]
    body = {"model": "m", "input": "$true", "tools": [{"type": kind, "environment": {}} for kind in kinds]}
    answer = gateway.ask("POST", "/responses", body)
    assert (answer.status, answer.headers.get("x-evil")) == (200, None)
    named = answer.headers["x-ferrule-not-run"]
    assert named.startswith("%E6%BC%A2%E5%AD%97, a%0D%0Ax-evil: 1, t0t0") and len(named) < 4096
    answer = gateway.ask("POST", "/containers", {"name": "c", "\r\nx-evil: 1": True})
    assert (answer.status, answer.headers.get("x-evil")) == (200, None)


def test_after_a_restart_the_files_are_there_and_python_says_so(tmp_path: Path) -> None:
    place = new_place(tmp_path)
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    with ScriptedModel(does) as model:
        with serving(place, model.base_url) as first, OpenAI(base_url=first.url, api_key="x") as client:
            reply = client.responses.create(model="m", input="open('f', 'w').write('1')", tools=[tool])  # type: ignore[list-item]
        with serving(place, model.base_url) as second, OpenAI(base_url=second.url, api_key="x") as client:
            more = client.responses.create(
                model="m",
                input="print(open('f').read())",
                tools=[tool],  # type: ignore[list-item]
                previous_response_id=reply.id,
                include=["code_interpreter_call.outputs"],
            )
    call = more.output[0]
    assert call.type == "code_interpreter_call" and call.outputs is not None
    logs = call.outputs[0]
    assert logs.type == "logs" and logs.logs.endswith("1") and "was started again" in logs.logs
