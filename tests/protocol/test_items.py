"""Items: read, kept byte for byte, written."""

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.protocol.content import InputImage, InputText, OutputText, UnknownPart, text_of
from ferrule.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    LocalShellCall,
    Message,
    Reasoning,
    ShellCall,
    UnknownItem,
    make_item,
    read_item,
)

EXAMPLES: list[dict[str, object]] = [
    {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hi", "annotations": [{"type": "url_citation", "url": "u"}]}],
    },
    {"type": "message", "role": "user", "content": "plain"},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_image", "image_url": "data:x", "detail": "high"},
            {"type": "input_file", "file_id": "f"},
        ],
    },
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "mcp__x"},
    {"type": "function_call_output", "call_id": "c", "output": "text"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]},
    {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin Patch"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    {
        "type": "local_shell_call",
        "id": "l",
        "action": {"type": "exec", "command": ["ls"], "env": {"A": "b"}, "timeout_ms": 5, "working_directory": "/"},
    },
    {"type": "local_shell_call_output", "id": "l", "output": "{}"},
    {
        "type": "shell_call",
        "call_id": "c",
        "action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": 9},
    },
    {
        "type": "shell_call_output",
        "call_id": "c",
        "output": [
            {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}},
            {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
        ],
    },
    {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "update_file", "path": "a", "diff": "@@"}},
    {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "Error: no file"},
    {
        "type": "computer_call",
        "call_id": "c",
        "action": {"type": "click", "x": 1, "y": 2},
        "pending_safety_checks": [{"id": "1"}],
    },
    {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "u"}},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "f", "queries": ["q"], "results": [{"file_id": "1"}]},
    {
        "type": "code_interpreter_call",
        "id": "i",
        "container_id": "k",
        "code": "1+1",
        "status": "interpreting",
        "outputs": [{"type": "logs", "logs": "2"}],
    },
    {"type": "image_generation_call", "id": "i", "result": "aGk="},
    {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": [{"name": "t"}]},
    {"type": "mcp_approval_request", "id": "m", "server_label": "s", "name": "t", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
    {"type": "mcp_call", "id": "m", "server_label": "s", "name": "t", "arguments": "{}", "output": "o"},
    {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "q"}},
    {
        "type": "tool_search_output",
        "call_id": "c",
        "execution": "client",
        "status": "completed",
        "tools": [{"type": "function"}],
    },
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]},
    {"type": "compaction", "id": "c", "encrypted_content": "x"},
    {"type": "item_reference", "id": "x"},
    {"type": "message_block", "id": "x", "message_fields": {"type": "server_tool_use", "id": "s"}},
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["type"]))
def test_each_kind_is_read_and_written(example: dict[str, object]) -> None:
    raw = json.dumps(example).encode()
    item = read_item(raw)
    assert not isinstance(item.view, UnknownItem)
    assert item.raw == raw
    written = json.loads(make_item(item.view).raw)
    assert {key: written[key] for key in example} == example


def test_every_kind_has_an_example() -> None:
    kinds = {str(view.__struct_config__.tag) for view in get_args(ItemView)}
    assert kinds - {str(example["type"]) for example in EXAMPLES} == {"unknown", "mcp_tool_call_output"}


def test_unknown_kinds_and_shapes_survive() -> None:
    for raw in (b'{"type":"teleport","x":[1,2]}', b'{"type":"function_call","name":5}', b'{"no":"type"}', b"[1]"):
        item = read_item(raw)
        assert isinstance(item.view, UnknownItem)
        assert item.raw == raw
    assert read_item('{"type":"teleport"}').view == UnknownItem("teleport")
    with pytest.raises(msgspec.DecodeError):
        read_item("{not json")


def test_an_unknown_part_does_not_cost_the_message_its_words() -> None:
    parts = '[{"type":"hologram","z":1},{"type":"output_text","text":"hi"}]'
    raw = f'{{"type":"message","role":"assistant","content":{parts}}}'
    view = read_item(raw).view
    assert isinstance(view, Message)
    assert view.content == (UnknownPart("hologram"), OutputText("hi"))
    assert text_of(view.content) == "hi"
    thinking = read_item('{"type":"reasoning","id":"r","summary":[{"type":"new"}],"content":null}').view
    assert isinstance(thinking, Reasoning)


def test_nulls_and_new_fields_are_taken() -> None:
    raw = '{"type":"function_call","id":null,"call_id":"c","name":"f","arguments":"","caller":{"type":"direct"}}'
    assert read_item(raw).view == FunctionCall(call_id="c", name="f", arguments="")
    shell = read_item('{"type":"shell_call","call_id":"c","action":{"commands":["a"],"timeout_ms":null}}').view
    assert isinstance(shell, ShellCall)
    local = read_item('{"type":"local_shell_call","id":"x","action":{"type":"exec","command":"ls -l"}}').view
    assert isinstance(local, LocalShellCall)
    assert local.action.command == "ls -l"


def test_what_we_write_has_no_empty_fields() -> None:
    assert make_item(FunctionCallOutput(call_id="c", output="")).raw == (
        b'{"type":"function_call_output","call_id":"c","output":""}'
    )
    parts = (InputText("a"), InputImage(image_url="data:image/png;base64,AA=="))
    assert json.loads(make_item(FunctionCallOutput(call_id="c", output=parts)).raw)["output"][1] == {
        "type": "input_image",
        "image_url": "data:image/png;base64,AA==",
    }


kinds = st.sampled_from([str(example["type"]) for example in EXAMPLES] + ["new"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4), kinds)
def test_any_object_is_an_item(fields: dict[str, object], kind: str) -> None:
    raw = json.dumps({**fields, "type": kind})
    assert read_item(raw).raw == raw.encode()
