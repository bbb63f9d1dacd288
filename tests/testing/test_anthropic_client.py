"""Anthropic's official client reads the Messages wire and finds nothing to complain of."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import Message, RawMessageStreamEvent, TextBlock, ThinkingBlock, ToolUseBlock
from pydantic import TypeAdapter

from ferrule.testing import (
    Failed,
    Framing,
    Item,
    RandomChunks,
    ScriptedModel,
    Step,
    StreamError,
    Usage,
    custom_tool_call,
    defects,
    function_call,
    http_error,
    message,
    reasoning,
    refusal,
    shell_call,
    step,
)

USER: Any = {"role": "user", "content": "go"}
ASK: Any = {"model": "any", "max_tokens": 100, "messages": [USER]}
PATCH = "*** Begin Patch\n*** Add File: naïve.txt\n+one\n*** End Patch\n"
CITED = {"type": "web_search_result_location", "url": "u", "title": "t", "encrypted_index": "e", "cited_text": "c"}
EVERYTHING: list[Item] = [
    reasoning(["Look first."], text="raw thought", encrypted_content="c2lnbmVk"),
    {"type": "redacted_thinking", "data": "c2VjcmV0"},
    message("Let me look at the files in this directory."),
    function_call("shell_command", '{"command": "printf \\"grüße\\"", "workdir": "/tmp"}'),
    function_call("echo", {}, namespace="mcp__demo"),
    custom_tool_call("apply_patch", PATCH),
    shell_call(["ls -la"], timeout_ms=1000),
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "message", "content": [{"type": "output_text", "text": "Sunny.", "annotations": [CITED]}]},
    {"type": "web_search_call", "action": {"type": "search", "query": "left out here"}},
]
USAGE = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=7, written_tokens=30)


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as running:
        yield running


@pytest.fixture
def client(model: ScriptedModel) -> Iterator[Anthropic]:
    with Anthropic(base_url=model.base_url.removesuffix("/v1"), api_key="unused", max_retries=0) as opened:
        yield opened
    model.check()


def test_every_event_is_one_of_the_api(model: ScriptedModel, client: Anthropic) -> None:
    model.add(step(*EVERYTHING, usage=USAGE))
    adapter: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    events = [adapter.validate_python(event.to_dict()) for event in client.messages.create(**ASK, stream=True)]
    assert [event.type for event in events[:2]] == ["message_start", "content_block_start"]
    assert [event.type for event in events[-2:]] == ["message_delta", "message_stop"]
    starts = [event.index for event in events if event.type == "content_block_start"]
    assert starts == list(range(10)) == [event.index for event in events if event.type == "content_block_stop"]
    assert events[-2].usage.cache_read_input_tokens == 64 and events[-2].usage.input_tokens == 6


def test_the_stream_and_the_whole_message_are_the_same(model: ScriptedModel, client: Anthropic) -> None:
    model.add(step(*EVERYTHING, usage=USAGE), step(*EVERYTHING, usage=USAGE, delta_chars=1))
    whole = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        streamed = stream.get_final_message()
    again = Message.model_validate(_without_ids(streamed))
    assert again == Message.model_validate(_without_ids(whole))
    kinds = [block.type for block in whole.content]
    assert kinds[:3] == ["thinking", "redacted_thinking", "text"] and kinds[3:7] == ["tool_use"] * 4
    assert kinds[7:] == ["server_tool_use", "web_search_tool_result", "text"]
    thought, said, call = whole.content[0], whole.content[2], whole.content[3]
    assert isinstance(thought, ThinkingBlock) and thought.signature == "c2lnbmVk"
    assert thought.thinking == "Look first.\nraw thought"
    assert isinstance(said, TextBlock) and said.text.startswith("Let me look")
    assert isinstance(call, ToolUseBlock) and call.input == {"command": 'printf "grüße"', "workdir": "/tmp"}
    named = [block for block in whole.content if isinstance(block, ToolUseBlock)]
    assert [block.name for block in named] == ["shell_command", "mcp__demo__echo", "apply_patch", "shell"]
    assert named[1].input == {} and named[2].input == {"input": PATCH}
    assert whole.stop_reason == "tool_use" and whole.usage.cache_creation_input_tokens == 30
    assert isinstance(last := whole.content[-1], TextBlock) and last.citations is not None


def _without_ids(said: Message) -> Any:
    """The message without the numbers that differ from one answer to the next."""
    blocks = [{**block, "id": ""} if block["type"] == "tool_use" else block for block in said.to_dict()["content"]]
    return {
        **said.to_dict(),
        "id": "",
        "content": [{k: v for k, v in block.items() if v is not None} for block in blocks],
    }


def test_a_loop_of_tools_goes_back_as_it_came(model: ScriptedModel, client: Anthropic) -> None:
    model.add(
        [reasoning(text="Hm", encrypted_content="c2ln"), function_call("f", {"a": 1}, call_id="toolu_1")],
        step("Done", expect={"toolu_1": "4 files"}),
    )
    first = client.messages.create(**ASK)
    result: Any = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "4 files"}]}
    last = client.messages.create(
        **{**ASK, "messages": [USER, first.to_param(), {"role": "user", "content": [result]}]}
    )
    assert isinstance(last.content[0], TextBlock) and last.content[0].text == "Done" and last.stop_reason == "end_turn"
    request = model.last_request
    assert request.wire == "messages" and request.outputs[0].text == "4 files" and request.user_text == "go"
    assert request.body["messages"][1]["content"][0]["signature"] == "c2ln"  # type: ignore[index]


def test_faults_reach_the_client_as_its_errors(model: ScriptedModel, client: Anthropic) -> None:
    model.add(
        http_error(529, "Overloaded", type="overloaded_error"),
        step("half", end=StreamError("Overloaded", type="overloaded_error")),
        step("half", end=Failed("gave up")),
        step("cut", end="missing"),
    )
    with pytest.raises(anthropic.APIStatusError, match="Overloaded") as refused:
        client.messages.create(**ASK)
    assert refused.value.status_code == 529
    for words in ("overloaded_error", "gave up"):
        with pytest.raises(anthropic.APIStatusError, match=words), client.messages.stream(**ASK) as stream:
            stream.get_final_message()
    with client.messages.stream(**ASK) as stream:
        assert stream.get_final_message().stop_reason is None


@pytest.mark.parametrize(
    ("played", "reason"),
    [
        (step("Half a", end="max_output_tokens"), "max_tokens"),
        (step("x", end="content_filter"), "refusal"),
        (step(refusal("No, because.")), "refusal"),
        (step("x", edits=defects.stop_reason("pause_turn")), "pause_turn"),
        (step("x", edits=defects.empty_deltas, framing=Framing(newline="\r\n")), "end_turn"),
        (step("x", chunks=RandomChunks(3)), "end_turn"),
    ],
)
def test_how_an_answer_ends(model: ScriptedModel, client: Anthropic, played: Step, reason: str) -> None:
    model.add(played)
    with client.messages.stream(**ASK) as stream:
        ended = stream.get_final_message()
    assert ended.stop_reason == reason
    if ended.stop_details is not None:
        assert ended.stop_details.explanation == "No, because."


def test_models_are_listed_as_this_api_lists_them(client: Anthropic) -> None:
    assert [(entry.id, entry.type) for entry in client.models.list()] == [("scripted-model", "model")]


CALL: Any = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
IMAGE: Any = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
THOUGHT: Any = {"type": "thinking", "thinking": "hm", "signature": "s"}
TEXT: Any = {"type": "text", "text": "x"}
BUDGET: Any = {"type": "enabled", "budget_tokens": 1024}


def _said(*blocks: Any) -> Any:
    return {"role": "user", "content": list(blocks)}


def _result(**fields: Any) -> Any:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x", **fields}]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"messages": [USER, CALL, USER]}, "without `tool_result` blocks immediately after: a"),
        ({"messages": [USER, CALL]}, "without `tool_result` blocks: a"),
        ({"messages": [USER, _result()]}, "unexpected `tool_use_id`"),
        ({"messages": [USER, CALL, _result(), CALL, _result()]}, "must be unique"),
        ({"messages": [USER, CALL, _result(content=[IMAGE], is_error=True)]}, "all content must be type"),
        ({"messages": [USER, CALL, _result(tool_use_id="a.b")]}, "should match pattern"),
        ({"messages": [USER, CALL, _said(TEXT, *_result()["content"])]}, "must stand before everything else"),
        ({"messages": [_said({"type": "text", "text": " "})]}, "must be non-empty"),
        ({"messages": [{"role": "system", "content": "x"}]}, "Unexpected role"),
        ({"messages": [USER, {"role": "assistant", "content": [THOUGHT]}, USER]}, "final block"),
        ({"thinking": {"type": "adaptive"}, "tool_choice": {"type": "any"}}, "forces tool use"),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "at least 1024"),
        ({"thinking": {"type": "adaptive"}, "temperature": 0.5}, "may only be set to 1"),
        (
            {"max_tokens": 2000, "thinking": BUDGET, "messages": [USER, CALL, _result()]},
            "must start with a thinking block",
        ),
        ({"messages": [_said(*[{**TEXT, "cache_control": {"type": "ephemeral"}}] * 5)]}, "A maximum of 4 blocks"),
    ],
)  # fmt: skip
def test_what_the_real_server_refuses_is_refused(changed: Any, words: str) -> None:
    with (
        ScriptedModel("never said") as strict,
        Anthropic(base_url=strict.base_url.removesuffix("/v1"), api_key="unused", max_retries=0) as client,
    ):
        with pytest.raises(anthropic.BadRequestError, match=words):
            client.messages.create(**ASK, extra_body=changed)
        assert strict.failures
