"""What is wrong in a request is named by its place."""

import json
from typing import Any

import msgspec
import pytest

from ferrule.responses.errors import ApiError
from ferrule.responses.request import read_request
from ferrule.responses.seals import MAX_ALL_OPENED_BYTES, MAX_OPENED_BYTES, Opener, sealed
from ferrule.responses.tools import plan_tools
from ferrule.responses.transcript import decode_items, encode_items, read_input


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": 3}, "input"),
        ({"temperature": 9}, "temperature"),
        ({"top_p": "x"}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a" * 65: "b"}}, "metadata." + "a" * 64),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"previous_response_id": "a", "conversation": "b"}, "conversation"),
        ({"background": True, "store": False}, "store"),
        ({"truncation": "some"}, "truncation"),
        ({"tools": {}}, "tools"),
    ],
)
def test_a_wrong_field_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        read_request(json.dumps(body).encode())
    assert (raised.value.status, raised.value.param) == (400, param)
    assert raised.value.body == {
        "error": {
            "message": str(raised.value), "type": "invalid_request_error", "code": raised.value.code, "param": param,
        }
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"a":' * 5000, b"null"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        read_request(body)
    assert raised.value.status == 400


def test_null_is_as_good_as_absent() -> None:
    names = ("temperature", "tools", "metadata", "reasoning", "text", "store", "stream", "conversation", "tool_choice")
    request = read_request(json.dumps(dict.fromkeys(names)).encode())
    assert request.store
    assert request.conversation is None


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: ("}


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({}, "tools[0].type"),
        ({"type": "function"}, "tools[0].name"),
        ({"type": "function", "name": ""}, "tools[0].name"),
        ({"type": "function", "name": "f", "parameters": []}, "tools[0].parameters"),
        ({"type": "custom", "name": "c", "format": {"type": "xml"}}, "tools[0].format.type"),
        ({"type": "custom", "name": "c", "format": GRAMMAR}, "tools[0].format.definition"),
        (
            {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c", "format": GRAMMAR}]},
            "tools[0].tools[0].format.definition",
        ),
        ({"type": "file_search"}, "tools[0].vector_store_ids"),
        ({"type": "web_search", "search_context_size": "huge"}, "tools[0].search_context_size"),
        ({"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "dos"},
         "tools[0].environment"),
        ({"type": "mcp", "server_label": "a", "headers": {"a": 1}}, "tools[0].headers"),
    ],
)  # fmt: skip
def test_a_known_tool_with_wrong_fields_is_named(tool: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        plan_tools([tool], lambda kind: False)
    assert (raised.value.status, raised.value.param) == (400, param)


def test_two_tools_of_one_name_are_refused() -> None:
    tool = {"type": "function", "name": "f"}
    with pytest.raises(ApiError, match="two tools are called 'f'"):
        plan_tools([tool, tool], lambda kind: False)


def test_credentials_of_a_server_are_not_shown() -> None:
    tool = {
        "type": "mcp",
        "server_label": "a",
        "server_url": "https://a",
        "authorization": "s3",
        "headers": {"k": "s3"},
    }
    plan = plan_tools([tool], lambda kind: False)
    assert "s3" not in json.dumps(plan.echoed)
    assert plan.not_run == ("mcp",)


def test_a_tool_that_the_upstream_knows_goes_there_as_it_is() -> None:
    tool = {"type": "web_search", "of_the_future": 1}
    plan = plan_tools([tool], lambda kind: kind == "web_search")
    assert [spec.to_responses() for spec in plan.specs] == [tool]
    assert plan.not_run == ()


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (3, "input[0]"),
        ({}, "input[0].type"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "boss", "content": "x"}, "input[0].role"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "c", "output": 3}, "input[0].output"),
    ],
)
def test_a_known_item_with_wrong_fields_is_named(item: Any, param: str) -> None:
    with pytest.raises(ApiError) as raised:
        read_input([msgspec.Raw(json.dumps(item).encode())])
    assert (raised.value.status, raised.value.param) == (400, param)


def test_unknown_items_and_parts_are_kept() -> None:
    items = [{"type": "of_the_future", "x": 1}, {"role": "user", "content": [{"type": "input_smell", "s": 1}]}]
    read = read_input([msgspec.Raw(json.dumps(item).encode()) for item in items])
    assert read[0]["x"] == 1
    assert read[1]["content"] == [{"type": "input_smell", "s": 1}]
    assert all(item["id"] for item in read)


def test_a_summary_survives_its_seal_and_a_damaged_one_is_refused() -> None:
    text = "Zusammenfassung 🔧 " * 99
    assert Opener().text(sealed(text)) == text
    assert Opener().text("gAAAA-of-another-server") is None
    for damaged in (sealed(text)[:-20], "ferrule.1.???", "ferrule.1.", sealed("a" * (MAX_OPENED_BYTES + 1))):
        with pytest.raises(ApiError, match="damaged"):
            Opener().text(damaged)


def test_made_up_thinking_is_refused() -> None:
    for made_up in ("[]", "5", '{"chat_field": 1}', '{"chat_fields": {"a": ' + "[" * 5_000 + "]" * 5_000 + "}}"):
        item = {"type": "reasoning", "summary": [], "encrypted_content": sealed(made_up)}
        with pytest.raises(ApiError, match=r"input\[0\]\.encrypted_content: .*damaged"):
            read_input([msgspec.Raw(json.dumps(item).encode())])


def test_few_bytes_cannot_stand_for_a_whole_memory() -> None:
    item = {"type": "compaction", "encrypted_content": sealed("a" * MAX_OPENED_BYTES)}
    most = MAX_ALL_OPENED_BYTES // MAX_OPENED_BYTES
    raw = msgspec.Raw(json.dumps(item).encode())
    assert len(read_input([raw] * most)) == most
    with pytest.raises(ApiError, match=rf"input\[{most}\]\.encrypted_content: at most"):
        read_input([raw] * (most + 1))


def test_a_transcript_keeps_bytes_and_origins() -> None:
    (item,) = decode_items(encode_items(decode_items(b'[[{"type":"message","role":"user","content":"x"},null]]')))
    assert item.raw == b'{"type":"message","role":"user","content":"x"}'
    assert item.origin is None
