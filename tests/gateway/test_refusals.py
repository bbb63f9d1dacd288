"""What a gateway refuses, and how it says so."""

import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ferrule.responses.seals import sealed
from ferrule.testing import ScriptedModel
from tests.gateway.served import Answer, Json, Served

ASK = {"model": "m", "input": "hi"}
SCREEN = {"type": "computer_call_output", "call_id": "c"}
PICTURE = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}
CLICKED = {"type": "computer_call", "call_id": "c", "action": {"type": "wait"}, "pending_safety_checks": []}
TWIN = {"type": "function", "name": "f"}


def test_what_is_no_json(gateway: Served) -> None:
    for body in (b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"input": "\xff"}'):
        answer = gateway.ask("POST", "/responses", body)
        assert answer.status == 400 and answer.error["type"] == "invalid_request_error", body


def thought(sealed_up: str) -> dict[str, object]:
    """A reasoning item."""
    return {"type": "reasoning", "summary": [], "encrypted_content": sealed_up}


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("model", 3, "model"),
        ("input", 3, "input"),
        ("stream", "yes", "stream"),
        ("temperature", "warm", "temperature"),
        ("temperature", 3, "temperature"),
        ("tools", {}, "tools"),
        ("tools", [{"type": "function"}], "tools[0].name"),
        ("metadata", {"a": 1}, "metadata"),
        ("text", {"format": {"type": "json_schema", "name": "a b", "schema": {}}}, "text.format.name"),
        ("previous_response_id", 7, "previous_response_id"),
        ("background", 1, "background"),
        ("tool_choice", "perhaps", "tool_choice"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("tool_choice", {"type": 3}, "tool_choice.type"),
        ("stream_options", {"include_obfuscation": 1}, "stream_options.include_obfuscation"),
        ("background_options", {"completion_window": "8h"}, "background_options.completion_window"),
        ("moderation", "strict", "moderation"),
        ("conversation", "conv_none", "conversation"),
        ("prompt", {"id": "pmpt_none"}, "prompt.id"),
        ("input", [{"role": "user", "content": [{"type": "input_file", "file_id": "file-none"}]}],
         "input[0].content[0].file_id"),
        ("input", [{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0]"),
        ("input", [{"type": "thing", "id": []}], "input[0].id"),
        ("input", [{"type": "compaction", "encrypted_content": "ferrule.1.x"}], "input[0].encrypted_content"),
        ("input", [thought("ferrule.1.x")], "input[0].encrypted_content"),
        ("input", [thought(sealed("[]"))], "input[0].encrypted_content"),
        ("input", [{"type": "configuration_update", "reasoning": {"effort": "huge"}}], "input[0].reasoning.effort"),
        ("input", [{"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]}],
         "input[0].tools[0].name"),
        ("input", [SCREEN | {"output": "screen.png"}], "input[0].output"),
        ("input", [SCREEN | {"output": {"type": "computer_screenshot"}}], "input[0].output"),
        ("input", [SCREEN | {"output": PICTURE}], "input"),
        ("input", [CLICKED, {"role": "user", "content": "hi"}], "input"),
        ("input", [CLICKED, SCREEN | {"output": PICTURE}, SCREEN | {"output": PICTURE}], "input"),
        ("input", [{"type": "apply_patch_call_output", "call_id": "c", "status": "odd"}], "input[0].status"),
        ("tools", [{"type": "shell", "environment": {"type": 3}}], "tools[0].environment.type"),
        ("tools", [{"type": "code_interpreter", "container": {}}], "tools[0].container.type"),
        ("tools", [{"type": "namespace", "name": "n", "tools": [TWIN, TWIN]}], "tools[0].tools[1].name"),
        ("tools", [{"type": "namespace", "name": "n", "tools": [TWIN]}, {"type": "function", "name": "n__f"}], "tools"),
        ("tool_choice", {"type": "allowed_tools", "tools": [TWIN]}, "tool_choice.tools[0].name"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_named(gateway: Served, field: str, value: Any, param: str) -> None:
    answer = gateway.ask("POST", "/responses", ASK | {field: value})
    assert answer.status == (404 if "none" in str(value) else 400)
    assert answer.error["param"] == param, answer.error


@pytest.mark.parametrize(
    "field",
    [
        {"input": [{"type": "thing_call", "call_id": "c1"}, {"role": "user", "content": "hi"}]},
        {"input": [{"type": "thing_output", "call_id": "c9"}, {"role": "user", "content": "hi"}]},
        {
            "tools": [
                {"type": "namespace", "name": "n", "tools": [{"type": "thing"}, {"type": "function", "name": "f"}]}
            ]
        },
    ],
)
def test_what_nobody_knows_is_never_refused(gateway: Served, field: Json) -> None:
    answer = gateway.ask("POST", "/responses", ASK | field)
    assert answer.status == 200 and answer.json["status"] == "completed"
    assert answer.headers.get("x-ferrule-not-run", "thing") == "thing"


def test_a_number_that_is_none_is_no_field(gateway: Served) -> None:
    answer = gateway.ask("POST", "/responses", b'{"model": "m", "input": "hi", "more": 1e999}')
    assert (answer.status, answer.error["param"]) == (400, None)


def test_an_output_without_its_call_is_named_as_the_client_named_it(gateway: Served) -> None:
    answer = gateway.ask(
        "POST", "/responses", ASK | {"input": [{"type": "shell_call_output", "call_id": "c", "output": []}]}
    )
    assert answer.status == 400 and "shell_call_output" in answer.error["message"]


def test_a_packed_body_is_refused(gateway: Served) -> None:
    answer = gateway.ask("POST", "/responses", b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("sent", ["nonsense", "GET /v1/models HTTP/3.0", "GET /v1/models HTTP/1.1\nhost : localhost"])
def test_what_is_no_http_is_refused_as_all_else(gateway: Served, sent: str) -> None:
    answer = exchange(gateway, f"{sent}\n")
    assert (answer.status, answer.error["code"]) == (400, "invalid_http")


def test_a_websocket_that_is_asked_for_by_post_is_answered(gateway: Served) -> None:
    head = (
        "POST /v1/responses HTTP/1.1\nhost: localhost\nconnection: upgrade\nupgrade: websocket\n"
        "sec-websocket-version: 13\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\ncontent-length: 0\n"
    )
    assert exchange(gateway, head).status == 400


def test_ids_that_do_not_exist(gateway: Served) -> None:
    for method, path in (
        ("GET", "/responses/resp_none"),
        ("DELETE", "/responses/resp_none"),
        ("POST", "/responses/resp_none/cancel"),
        ("GET", "/responses/resp_none/input_items"),
        ("GET", "/responses/resp_none?stream=true"),
        ("GET", "/models/none"),
    ):
        answer = gateway.ask(method, path)
        assert answer.status == 404 and answer.error["code"] == "not_found", path
    answer = gateway.ask("POST", "/responses", ASK | {"previous_response_id": "resp_none"})
    assert answer.error["code"] == "previous_response_not_found"
    assert answer.error["param"] == "previous_response_id"


def test_paths_and_methods_that_do_not_exist(gateway: Served) -> None:
    for path in ("/nothing", "/responses/a/b/c", "/responses/", "/../etc/passwd", "/%00"):
        answer = gateway.ask("GET", path)
        assert answer.status == 404 and answer.error["code"] == "not_found", path
    answer = gateway.ask("PUT", "/responses", ASK)
    assert (answer.status, answer.headers["allow"], answer.error["code"]) == (405, "POST", "method_not_allowed")
    answer = gateway.ask("PATCH", "/responses/resp_1")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, DELETE, HEAD")


def exchange(gateway: Served, head: str, *pieces: bytes) -> Answer:
    """Send a request byte by byte as it is given, until there is an answer, and read that."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n")
        for piece in pieces:
            connection.sendall(piece)
        with connection.makefile("rb") as lines:
            status = int(lines.readline().split()[1])
            headers = {}
            while line := lines.readline().strip().decode():
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            return Answer(status, headers, lines.read(int(headers["content-length"])))


def memory_of(gateway: Served) -> int:
    """The most memory that the server has had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{gateway.process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def test_a_body_that_is_announced_as_too_large_is_not_read(gateway: Served) -> None:
    answer = exchange(gateway, f"POST /v1/responses HTTP/1.1\nhost: localhost\ncontent-length: {100 << 20}\n")
    assert answer.status == 413 and answer.error["code"] == "request_too_large"


IN_PROC = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@IN_PROC
def test_a_body_that_grows_too_large_is_not_kept(gateway: Served) -> None:
    gateway.create()
    before = memory_of(gateway)
    piece = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
    head = "POST /v1/responses HTTP/1.1\nhost: localhost\ntransfer-encoding: chunked\n"
    answer = exchange(gateway, head, *([piece] * 100), b"0\r\n\r\n")
    assert answer.status == 413 and answer.error["code"] == "request_too_large"
    assert memory_of(gateway) - before < 80 << 20
    assert gateway.create()["status"] == "completed"


@IN_PROC
def test_a_head_that_does_not_end_is_refused(gateway: Served) -> None:
    before = memory_of(gateway)
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx: ")
        with suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(b"x" * (1 << 20))
        with suppress(ConnectionError):
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert memory_of(gateway) - before < 80 << 20


HOSTS: list[tuple[Mapping[str, str], int]] = [
    ({"host": "localhost:{port}"}, 200),
    ({"host": "LOCALHOST"}, 200),
    ({"host": "127.0.0.1:{port}", "origin": "http://localhost:{port}"}, 200),
    ({"host": "[::1]:{port}"}, 200),
    ({"host": "evil.example:{port}"}, 403),
    ({"host": "localhost.evil.example"}, 403),
    ({"host": "evil.example@localhost"}, 403),
    ({"host": ""}, 403),
    ({"host": "localhost", "origin": "https://evil.example"}, 403),
    ({"host": "localhost", "origin": "null"}, 403),
    ({"host": "localhost", "origin": "file://localhost"}, 403),
    ({"host": "localhost", "origin": "http://localhost.evil.example"}, 403),
]


@pytest.mark.parametrize(("headers", "status"), HOSTS)
def test_only_its_own_names_and_pages_may_ask(gateway: Served, headers: Mapping[str, str], status: int) -> None:
    lines = "".join(f"{name}: {value.format(port=gateway.port)}\n" for name, value in headers.items())
    answer = exchange(gateway, f"GET /v1/models HTTP/1.1\n{lines}")
    assert answer.status == status
    if status != 200:
        assert answer.error["code"] == "host_not_allowed"


def test_two_hosts_are_none(gateway: Served) -> None:
    answer = exchange(gateway, "GET /v1/models HTTP/1.1\nhost: localhost\nhost: evil.example\n")
    assert answer.status in (400, 403)


def test_a_request_without_a_host_is_refused(gateway: Served) -> None:
    assert exchange(gateway, "GET /v1/models HTTP/1.1\n").status in (400, 403)


def test_an_error_of_the_upstream_tells_no_secret(gateway: Served, model: ScriptedModel) -> None:
    answer = gateway.ask("POST", "/responses", ASK | {"input": "limit"})
    assert answer.status == 429 and str(model.port) not in json.dumps(answer.json)


def test_a_client_that_stops_in_its_request_leaves_no_trace(gateway: Served) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
    assert gateway.create()["status"] == "completed"
