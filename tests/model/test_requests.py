# ruff: noqa: E501 - items read better in one line
"""The bodies that are sent: valid by the openai SDK's own types, adapted to the server, and encoded once."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

from ferrule.history.history import History
from ferrule.model.chat import request as chat_request
from ferrule.model.http import Endpoint, Server
from ferrule.model.profiles import load_profiles
from ferrule.model.responses import request as responses_request
from ferrule.model.stream import ForcedTool, ModelError, ModelRequest, OutputFormat
from ferrule.model.wire import WireModel
from ferrule.protocol.content import InputImage, InputText, OutputText
from ferrule.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    McpToolCallOutput,
    Message,
    ResponseItem,
    ToolSearchCall,
    ToolSearchOutput,
    make_item,
    read_item,
)
from ferrule.protocol.settings import ModelSettings
from ferrule.protocol.specs import (
    ApplyPatchTool,
    FileSearch,
    ImageGeneration,
    LocalShell,
    NamespaceTool,
    ShellTool,
    ToolSearchTool,
    ToolSpec,
    WebSearch,
    Wire,
)
from tests.model.support import TOOLS, freeform, function, outcome, raw_server, reply, request, user, wire_model

PIXEL = "data:image/png;base64,iVBORw0KGgo="
RESPONSES_TYPE = TypeAdapter(ResponseCreateParamsStreaming)
CHAT_TYPE = TypeAdapter(CompletionCreateParamsStreaming)


def offline(wire: Wire, accepts: str | None = None, **changes: object) -> WireModel:
    server = Server(Endpoint(name="Test", base_url="http://test", params={}, headers=dict, idle_timeout_ms=1000))
    model = wire_model(wire, server, accepts)
    if changes:
        model = wire_model(wire, server, msgspec.structs.replace(model.accepts, **changes))
    return model


def body(wire: Wire, asked: ModelRequest, accepts: str | None = None, **changes: object) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(offline(wire, accepts, **changes).body(asked))
    kind = RESPONSES_TYPE if wire == "responses" else CHAT_TYPE
    try:
        kind.validate_python(sent)
    except ValidationError as error:
        places = {".".join(str(step)[:40] for step in problem["loc"][:4]) for problem in error.errors()}
        raise AssertionError(f"openai does not take this body: {sorted(places)[:8]}") from None
    return sent


def said(text: str) -> ResponseItem:
    return make_item(
        Message(id="msg_1", status="completed", role="assistant", content=(OutputText(text, annotations=()),))
    )


def called(call_id: str, arguments: str = '{"cmd":"ls"}', **fields: Any) -> ResponseItem:
    return make_item(FunctionCall(call_id=call_id, name="exec_command", arguments=arguments, **fields))


def answered(call_id: str, output: Any = "ok") -> ResponseItem:
    return make_item(FunctionCallOutput(call_id=call_id, output=output))


THOUGHT = read_item('{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}')
SHOWN = read_item('{"type":"reasoning","id":"rs_2","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}')
PATCH = make_item(CustomToolCall(call_id="p1", name="apply_patch", input='*** "x"\n'))
HISTORY = (
    make_item(Message(role="developer", content="Rules.")), user("Fix it"), THOUGHT, said("Looking."), called("c1"), PATCH,
    answered("c1"), make_item(CustomToolCallOutput(call_id="p1", output="Done!")), said("All done."), user("Thanks"),
)  # fmt: skip
HOSTED: tuple[ToolSpec, ...] = (
    WebSearch(), FileSearch(vector_store_ids=("vs_1",)), ImageGeneration(), LocalShell(), ApplyPatchTool(), ShellTool(),
    ToolSearchTool(description="find", parameters={"type": "object", "properties": {}}),
    NamespaceTool(name="mcp__gh", description="GitHub", tools=(function("create_issue"),)),
)  # fmt: skip


def test_a_responses_body_has_what_codex_sends() -> None:
    settings = ModelSettings(reasoning_summary="auto", max_output_tokens=500)
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    sent = body(
        "responses",
        request(*HISTORY, settings=settings, session_id="s1", output_format=OutputFormat(schema=schema)),
        "openai",
    )
    assert sent["model"] == "gpt-5.5"
    assert sent["instructions"] == "Be brief."
    assert sent["stream"] is True
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["prompt_cache_key"] == "s1"
    assert sent["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert sent["tool_choice"] == "auto"
    assert sent["parallel_tool_calls"] is True
    assert sent["max_output_tokens"] == 500
    assert sent["text"]["verbosity"] == "low"
    assert sent["text"]["format"] == {"type": "json_schema", "name": "output", "schema": schema, "strict": True}
    assert [tool["type"] for tool in sent["tools"]] == ["function"] * 5 + ["custom"]


def test_history_goes_out_byte_for_byte() -> None:
    odd = read_item(b'{ "type": "kind_of_the_future", "z": 1.50,  "a": "\\u00e9" }')
    model = offline("responses", "openai")
    sent = model.body(request(user("hi"), THOUGHT, called("c1"), odd))
    assert b",".join(item.raw for item in (user("hi"), THOUGHT, called("c1"), odd)) in sent


def test_every_native_tool_is_sent_to_openai() -> None:
    sent = body("responses", request(tools=HOSTED), "openai")
    kinds = ["web_search", "file_search", "image_generation", "local_shell", "apply_patch", "shell", "tool_search"]
    assert [tool["type"] for tool in sent["tools"]] == [*kinds, "namespace"]
    assert sent["parallel_tool_calls"] is False


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_parallel_calls_follow_strict_tools_settings_and_profile(wire: Wire) -> None:
    strict = (function("shell", strict=True),)
    assert body(wire, request(tools=strict), "openai")["parallel_tool_calls"] is False
    assert body(wire, request(tools=strict), "llamacpp")["parallel_tool_calls"] is True  # strict is not sent there
    assert body(wire, request(settings=ModelSettings(parallel_tool_calls=False)))["parallel_tool_calls"] is False
    assert body(wire, request(model="gpt-oss-20b"))["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in body(wire, request(tools=()))
    assert "parallel_tool_calls" not in body(wire, request(), "ollama")


def test_tool_choice_in_each_wires_spelling() -> None:
    for choice in ("auto", "none", "required"):
        assert body("responses", request(tool_choice=choice))["tool_choice"] == choice
        assert body("chat", request(tool_choice=choice))["tool_choice"] == choice
    shell, patch = ForcedTool("shell"), ForcedTool("apply_patch")
    assert body("responses", request(tool_choice=shell), "openai")["tool_choice"] == {
        "type": "function",
        "name": "shell",
    }
    assert body("responses", request(tool_choice=patch), "openai")["tool_choice"] == {
        "type": "custom",
        "name": "apply_patch",
    }
    forced = {"type": "function", "function": {"name": "shell"}}
    assert body("chat", request(tool_choice=shell))["tool_choice"] == forced
    custom = {"type": "custom", "custom": {"name": "apply_patch"}}
    assert body("chat", request(tool_choice=patch), "openai")["tool_choice"] == custom
    native = request(tools=(ApplyPatchTool(),), tool_choice=patch)
    assert body("responses", native, "openai")["tool_choice"] == {"type": "apply_patch"}


def test_a_server_that_takes_no_forced_tool_gets_only_that_tool() -> None:
    sent = body("chat", request(tool_choice=ForcedTool("shell")), "ollama")
    assert sent["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["shell"]


def test_a_choice_of_a_tool_that_is_not_sent_fails_with_its_name() -> None:
    with pytest.raises(ModelError, match="'web_search'"):
        body("chat", request(tools=(WebSearch(),), tool_choice=ForcedTool("web_search")))


def test_what_the_provider_would_run_is_left_out_and_what_runs_here_fails_by_name() -> None:
    assert "tools" not in body("chat", request(tools=(WebSearch(), ImageGeneration())))
    with pytest.raises(ModelError, match="'local_shell'"):
        body("chat", request(tools=(LocalShell(),)))
    with pytest.raises(ModelError, match="'apply_patch'"):
        body("responses", request(tools=(ApplyPatchTool(),)), "ollama")


def test_what_runs_here_is_left_out_where_a_function_does_the_same() -> None:
    every = (LocalShell(), ShellTool(), ApplyPatchTool(), function("shell"), freeform("apply_patch"))
    assert [tool["function"]["name"] for tool in body("chat", request(tools=every))["tools"]] == [
        "shell",
        "apply_patch",
    ]
    sent = body("responses", request(tools=every), "openai")["tools"]
    assert [tool["type"] for tool in sent] == ["local_shell", "shell", "apply_patch", "function", "custom"]
    with pytest.raises(ModelError, match="'apply_patch'"):
        body("chat", request(tools=(ApplyPatchTool(), function("shell"))))


def test_two_tools_of_one_name_fail_by_name() -> None:
    clash = NamespaceTool(name="mcp", description="", tools=(function("shell"),))
    with pytest.raises(ModelError, match="'mcp__shell'"):
        body("chat", request(tools=(clash, function("mcp__shell"))))


def test_a_careful_server_gets_functions_only() -> None:
    namespace = NamespaceTool(name="mcp__gh", description="", tools=(function("create_issue"), freeform("note")))
    sent = body("chat", request(tools=(*TOOLS, namespace, ToolSearchTool())))
    assert {tool["type"] for tool in sent["tools"]} == {"function"}
    names = [tool["function"]["name"] for tool in sent["tools"]]
    assert names[-4:] == ["apply_patch", "mcp__gh__create_issue", "mcp__gh__note", "tool_search"]
    assert "grammar" not in json.dumps(sent["tools"][5]["function"]["parameters"])
    assert "strict" not in body("chat", request(tools=(function("a", strict=True),)))["tools"][0]["function"]
    assert body("chat", request(tools=(function("a", strict=True),)), "vllm")["tools"][0]["function"]["strict"] is True


def test_long_and_odd_names_fit_the_wire() -> None:
    long = NamespaceTool(name="mcp__" + "x" * 50, description="", tools=(function("y" * 40), function("y" * 41)))
    names = [tool["function"]["name"] for tool in body("chat", request(tools=(long, function("a.b c"))))["tools"]]
    assert all(len(name) <= 64 for name in names)
    assert len(set(names)) == 3
    assert names[2] == "a_b_c"


def test_chat_messages_of_a_history() -> None:
    sent = body("chat", request(*HISTORY))
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief.\n\nRules."},
        {"role": "user", "content": "Fix it"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "exec_command", "arguments": '{"cmd":"ls"}'}},
                {"id": "p1", "type": "function",
                 "function": {"name": "apply_patch", "arguments": '{"input":"*** \\"x\\"\\n"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "tool", "tool_call_id": "p1", "content": "Done!"},
        {"role": "assistant", "content": "All done."},
        {"role": "user", "content": "Thanks"},
    ]  # fmt: skip
    assert sent["stream_options"] == {"include_usage": True}


def test_chat_keeps_custom_tools_where_the_server_knows_them() -> None:
    sent = body("chat", request(*HISTORY), "openai")
    assert sent["messages"][0]["role"] == "developer"
    assert sent["messages"][2]["tool_calls"][1] == {
        "id": "p1", "type": "custom", "custom": {"name": "apply_patch", "input": '*** "x"\n'},
    }  # fmt: skip
    assert sent["tools"][-1]["type"] == "custom"
    assert sent["verbosity"] == "low"
    assert sent["reasoning_effort"] == "medium"


def test_b080_a_turn_of_calls_only_has_null_content() -> None:
    sent = body("chat", request(user("hi"), called("c1"), answered("c1")))
    assert sent["messages"][2]["content"] is None
    assert sent["messages"][2]["tool_calls"][0]["id"] == "c1"
    assert body("chat", request(user("hi"), called("c1"), answered("c1")), "mistral")["messages"][2]["content"] == ""


def test_b080_an_empty_turn_is_dropped_and_a_turn_of_calls_is_not() -> None:
    empty = make_item(Message(role="assistant", content=()))
    roles = [message["role"] for message in body("chat", request(user("a"), empty, user("b")))["messages"]]
    assert roles == ["system", "user", "user"]
    received = make_item(Message(role="assistant", content=""))
    sent = body("chat", request(user("a"), received, called("c1"), answered("c1")))["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]


def test_answers_follow_their_calls_in_order_and_nothing_stands_between() -> None:
    sent = body(
        "chat", request(user("a"), called("c1"), called("c2"), user("wait"), answered("c2", "2"), answered("c1", "1"))
    )
    roles = [(message["role"], message.get("tool_call_id")) for message in sent["messages"]]
    assert roles == [
        ("system", None),
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
    ]


def test_a_call_without_an_answer_is_answered_and_an_answer_without_a_call_is_not_sent() -> None:
    sent = body("chat", request(user("a"), called("c1"), said("hm"), answered("c9")))["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[3]["content"] == "aborted"


def test_images_of_tool_outputs_follow_in_a_message_of_the_user() -> None:
    parts = (InputText("a picture"), InputImage(image_url=PIXEL, detail="original"))
    history = (user("look"), called("c1"), called("c2"), answered("c1", parts), answered("c2"))
    sent = body("chat", request(*history))["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert sent[3]["content"] == "a picture"
    assert sent[5]["content"][1] == {"type": "image_url", "image_url": {"url": PIXEL}}
    careful = body("responses", request(*history), "ollama")["input"]
    assert [item["type"] for item in careful[-3:]] == ["function_call_output", "function_call_output", "message"]
    assert careful[-3]["output"] == "a picture"
    assert careful[-1]["content"][1]["image_url"] == PIXEL
    native = body("responses", request(*history), "openai")["input"]
    assert native[-2]["output"][1]["image_url"] == PIXEL


def test_damaged_arguments_of_the_history_do_not_break_the_server() -> None:
    def sent(arguments: str) -> str:
        calls = body("chat", request(user("a"), called("c1", arguments), answered("c1")))["messages"][2]["tool_calls"]
        return str(calls[0]["function"]["arguments"])

    assert sent('{"cmd":"ls"}') == '{"cmd":"ls"}'
    assert json.loads(sent('{"cmd":"a\nb"}')) == {"cmd": "a\nb"}
    assert json.loads(sent('{"cmd":"ec')) == {"arguments": '{"cmd":"ec'}
    assert json.loads(sent("[1]")) == {"arguments": "[1]"}


def test_reasoning_is_replayed_where_it_can_be() -> None:
    history = (user("a"), THOUGHT, SHOWN, called("c1"), answered("c1"))
    ids = [item.get("id") for item in body("responses", request(*history), "openai")["input"]]
    assert ids == [None, "rs_1", None, None]
    kept = body("responses", request(*history), "vllm")["input"]
    assert [item["type"] for item in kept][1:3] == ["reasoning", "reasoning"]
    assert body("chat", request(*history), "deepseek")["messages"][2]["reasoning_content"] == "Hm."
    assert body("chat", request(*history), "ollama")["messages"][2]["reasoning"] == "Hm."
    assert "reasoning_content" not in body("chat", request(*history))["messages"][2]


def test_a_server_that_stores_is_sent_what_is_new() -> None:
    asked = request(*HISTORY, previous_response_id="resp_1", stored_items=9)
    sent = body("responses", asked, "openai", stores=True)
    assert sent["previous_response_id"] == "resp_1"
    assert sent["store"] is True
    assert len(sent["input"]) == 1
    unstored = body("responses", asked, "openai")
    assert "previous_response_id" not in unstored
    assert len(unstored["input"]) == len(HISTORY)


async def test_a_lost_response_is_replaced_by_the_whole_history() -> None:
    lost = b'{"error":{"code":"previous_response_not_found","message":"Previous response not found"}}'
    done = b'{"object":"response","id":"r","output":[]}'
    async with raw_server([reply("400 Bad Request", lost)], [reply("200 OK", done)]) as served:
        server = Server(Endpoint(name="T", base_url=served.base_url, params={}, headers=dict, idle_timeout_ms=1000))
        accepts = msgspec.structs.replace(load_profiles().providers["openai"], stores=True)
        model = wire_model("responses", server, accepts)
        found = await outcome(model, request(*HISTORY, previous_response_id="resp_1", stored_items=9))
    assert found.error is None
    assert [len(json.loads(sent)["input"]) for _, sent in served.requests] == [1, len(HISTORY)]


def test_items_of_one_wire_are_sent_over_a_careful_one() -> None:
    spec = {"type": "function", "name": "x", "description": "", "parameters": {}, "strict": False}
    search = make_item(ToolSearchCall(call_id="t1", arguments=msgspec.Raw(b'{"query":"x"}'), execution="client"))
    found = make_item(
        ToolSearchOutput(call_id="t1", tools=(msgspec.Raw(json.dumps(spec).encode()),), execution="client")
    )
    mcp = make_item(McpToolCallOutput(call_id="m1", output="ok"))
    deep = called("m1", namespace="mcp__gh")
    history = (user("a"), search, found, deep, mcp, PATCH, make_item(CustomToolCallOutput(call_id="p1", output="ok")))
    careful = body("responses", request(*history), "ollama")["input"]
    assert [item["type"] for item in careful[1:]] == ["function_call", "function_call_output"] * 3
    assert careful[3]["name"] == "mcp__gh__exec_command"
    assert "namespace" not in careful[3]
    chat = body("chat", request(*history))["messages"]
    assert [call["function"]["name"] for message in chat for call in message.get("tool_calls", ())] == [
        "tool_search", "mcp__gh__exec_command", "apply_patch",
    ]  # fmt: skip
    native = body("responses", request(*history), "openai")["input"]
    assert [item["type"] for item in native[3:5]] == ["function_call", "function_call_output"]
    assert native[3]["namespace"] == "mcp__gh"


def test_user_settings_are_sent_even_where_the_profile_says_nothing() -> None:
    settings = ModelSettings(reasoning_effort="high", verbosity="high", temperature=0.5, max_output_tokens=10)
    sent = body("chat", request(model="qwen3", settings=settings))
    assert (sent["reasoning_effort"], sent["verbosity"], sent["temperature"]) == ("high", "high", 0.5)
    assert sent["max_tokens"] == 10
    assert "reasoning_effort" not in body("chat", request(model="qwen3"), "ollama")


SAMPLED = ModelSettings(
    top_p=0.9, top_logprobs=2, presence_penalty=0.1, frequency_penalty=0.2, stop=("END",), seed=7, service_tier="flex"
)
SHARED = {"top_p": 0.9, "top_logprobs": 2, "presence_penalty": 0.1, "frequency_penalty": 0.2, "service_tier": "flex"}


@pytest.mark.parametrize(
    ("wire", "expected"),
    [("chat", SHARED | {"logprobs": True, "stop": ["END"], "seed": 7}), ("responses", SHARED)],
)
def test_all_sampling_parameters_are_sent(wire: Wire, expected: dict[str, object]) -> None:
    sent = body(wire, request(settings=SAMPLED))
    names = {*SHARED, "logprobs", "stop", "seed"}
    assert {name: sent[name] for name in names & sent.keys()} == expected
    assert not names & body(wire, request()).keys()


def test_the_answer_may_be_any_json_object_or_follow_a_named_schema() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    named = OutputFormat(schema=schema, name="person", description="One person.", strict=False)
    whole = {"name": "person", "description": "One person.", "schema": schema, "strict": False}
    assert body("chat", request(output_format=named))["response_format"] == {
        "type": "json_schema", "json_schema": whole,
    }  # fmt: skip
    assert body("responses", request(output_format=named))["text"]["format"] == {"type": "json_schema", **whole}
    plain = request(output_format=OutputFormat())
    assert body("chat", plain)["response_format"] == {"type": "json_object"}
    assert body("responses", plain)["text"]["format"] == {"type": "json_object"}


def test_an_open_schema_is_not_called_strict() -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"a": {"type": "string"}}}
    sent = body("chat", request(output_format=OutputFormat(schema=schema)))
    assert sent["response_format"]["json_schema"] == {"name": "output", "schema": schema, "strict": False}


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_turn_encodes_only_what_is_new(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    model = offline(wire, "ollama")
    encoded: list[object] = []
    module = chat_request if wire == "chat" else responses_request
    kept: Callable[[object], bytes] = module._encode

    def count(value: object) -> bytes:
        encoded.append(value)
        return kept(value)

    monkeypatch.setattr(module, "_encode", count)
    items: list[ResponseItem] = [user("go")]
    for turn in range(30):
        items += [said(f"turn {turn}"), called(f"c{turn}"), answered(f"c{turn}", (InputText("a"), InputText("b")))]
        model.body(request(*items))
    before = len(encoded)
    items += [said("last"), called("last"), answered("last")]
    whole = model.body(request(*items))
    assert len(encoded) - before < 15
    assert whole == offline(wire, "ollama").body(request(*items))


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_history_that_grows_item_by_item_gives_the_same_body(wire: Wire) -> None:
    parts = (InputText("a"), InputImage(image_url=PIXEL))
    items = (
        *HISTORY,
        called("c2"),
        called("c3"),
        user("wait"),
        answered("c3", parts),
        answered("c2", parts),
        user("go"),
        user("on"),
    )
    model = offline(wire, "ollama")
    for end in range(1, len(items) + 1):
        asked = request(*items[:end])
        assert model.body(asked) == offline(wire, "ollama").body(asked)


def test_a_changed_history_is_converted_anew() -> None:
    model = offline("chat")
    model.body(request(user("a"), called("c1"), answered("c1"), user("b")))
    changed = request(user("other"), said("x"))
    assert model.body(changed) == offline("chat").body(changed)
    assert model.body(request(user("a"))) == offline("chat").body(request(user("a")))


def test_sessions_that_share_a_model_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model, alone = offline("chat"), offline("chat")
    histories = {name: [part for n in range(20) for part in (user(f"{name}{n}"), said("x"))] for name in ("a", "b")}
    for name, items in histories.items():
        model.body(request(*items, session_id=name))
    encoded: list[object] = []
    kept: Callable[[object], bytes] = chat_request._encode

    def count(value: object) -> bytes:
        encoded.append(value)
        return kept(value)

    monkeypatch.setattr(chat_request, "_encode", count)
    for name, items in histories.items():
        asked = request(*items, tools=(function(f"tool_{name}"),), session_id=name)
        before = len(encoded)
        body = model.body(asked)
        assert len(encoded) - before < 10
        assert body == alone.body(asked)


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_history_that_only_grew_is_not_compared_and_another_one_is(wire: Wire) -> None:
    model, history = offline(wire), History([user("one"), said("two")])

    def sent() -> str:
        return model.body(request(*history.items, lineage=history.lineage)).decode()

    for number in range(3):
        history.append(user(f"more {number}"))
        assert f"more {number}" in sent()
    history.replace([user("uno"), *history.items[1:]])
    assert '"uno"' in sent() and '"one"' not in sent()
