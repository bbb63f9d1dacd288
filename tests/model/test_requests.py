"""The bodies that are sent: valid by the openai SDK's own types, adapted to the server, and encoded once."""

import json

import msgspec
import pytest

from ferrule.model.stream import ForcedTool, ModelError, OutputFormat
from ferrule.protocol.items import (
    CustomToolCallOutput,
    McpToolCallOutput,
    ToolSearchCall,
    ToolSearchOutput,
    make_item,
    read_item,
)
from ferrule.protocol.settings import ModelSettings
from ferrule.protocol.specs import (
    ApplyPatchTool,
    AutoContainer,
    CodeInterpreter,
    ComputerTool,
    FileSearch,
    ImageGeneration,
    LocalShell,
    NamespaceTool,
    RemoteMcp,
    ShellTool,
    ToolSearchTool,
    ToolSpec,
    WebSearch,
    Wire,
)
from tests.model.bodies import HISTORY, PATCH, SHOWN, THOUGHT, answered, body, called, offline
from tests.model.support import TOOLS, freeform, function, request, user

HOSTED: tuple[ToolSpec, ...] = (
    WebSearch(), FileSearch(vector_store_ids=("vs_1",)), CodeInterpreter(container=AutoContainer()), ImageGeneration(),
    RemoteMcp(server_url="https://mcp.example.com"), ComputerTool(), LocalShell(), ApplyPatchTool(), ShellTool(),
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
    assert [tool["type"] for tool in sent["tools"]] == [
        "web_search", "file_search", "code_interpreter", "image_generation", "mcp", "computer", "local_shell",
        "apply_patch", "shell", "tool_search", "namespace",
    ]  # fmt: skip
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


def test_reasoning_is_replayed_where_it_can_be() -> None:
    history = (user("a"), THOUGHT, SHOWN, called("c1"), answered("c1"))
    sent = body("responses", request(*history), "openai")["input"]
    assert [item.get("id") for item in sent] == [None, "rs_1", None, None]
    assert sent[1]["encrypted_content"] == "gAAA"
    kept = body("responses", request(*history), "vllm")["input"]
    assert [item["type"] for item in kept][1:3] == ["reasoning", "reasoning"]
    assert body("chat", request(*history), "deepseek")["messages"][2]["reasoning_content"] == "Hm."
    assert body("chat", request(*history), "ollama")["messages"][2]["reasoning"] == "Hm."
    assert "reasoning_content" not in body("chat", request(*history))["messages"][2]


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
