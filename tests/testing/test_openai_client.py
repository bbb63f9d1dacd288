"""The official client reads both wires and finds nothing to complain of."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from ferrule.testing import (
    Item,
    ScriptedModel,
    Usage,
    apply_patch_call,
    custom_tool_call,
    function_call,
    local_shell_call,
    message,
    reasoning,
    refusal,
    shell_call,
    step,
)

PATCH = "*** Begin Patch\n*** Add File: naïve.txt\n+one\n+two\n*** End Patch\n"
ARGUMENTS = '{"command":"printf \'%s\' \\"grüße\\"","workdir":"/tmp"}'

EVERYTHING: list[Item] = [
    reasoning(["Look first.", "Then act."], text="raw thought", encrypted_content="b64=="),
    message("Let me look at the files in this directory.", phase="commentary"),
    function_call("shell_command", ARGUMENTS),
    function_call("echo", {"text": "hi"}, namespace="mcp__demo"),
    custom_tool_call("apply_patch", PATCH),
    shell_call(["ls -la", "git status --short --branch"], timeout_ms=1000),
    local_shell_call(["ls", "-l"], working_directory="/tmp"),
    apply_patch_call("update_file", "a.txt", "@@\n-a\n+b\n"),
    refusal("I will not do that, sorry."),
    {"type": "web_search_call", "action": {"type": "search", "query": "x"}},
    {"type": "file_search_call", "queries": ["x"], "results": None},
    {"type": "code_interpreter_call", "container_id": "c", "code": "print('hello world')", "outputs": []},
    {"type": "image_generation_call", "result": "aGk="},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    {"type": "mcp_call", "server_label": "s", "name": "t", "arguments": '{"a": "bbbbbbbbbbbbbbb"}', "output": "o"},
    {"type": "compaction", "encrypted_content": "zzz"},
]
USAGE = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=7)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(step(*EVERYTHING, usage=USAGE)) as running:
        yield running
        running.check()


@pytest.fixture
def client(model: ScriptedModel) -> Iterator[OpenAI]:
    with OpenAI(base_url=model.base_url, api_key="unused", max_retries=0) as opened:
        yield opened


def test_raw_responses_stream_is_valid_event_by_event(client: OpenAI) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    events = [adapter.validate_python(event.to_dict()) for event in _raw_events(client)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert events[-1].response.usage.total_tokens == 120
    assert events[-1].response.usage.input_tokens_details.cached_tokens == 64
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert len(deltas) > 2 and "".join(deltas).startswith(ARGUMENTS)
    patch = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert len(patch) > 2 and "".join(patch) == PATCH
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == events[-1].response.output and len(done) == len(EVERYTHING)


def _raw_events(client: OpenAI) -> list[Any]:
    return list(client.responses.create(model="m", input="go", stream=True))


def test_responses_stream_helper(client: OpenAI) -> None:
    with client.responses.stream(model="m", input="go") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == "Let me look at the files in this directory."
    assert [item.type for item in final.output] == [item["type"] for item in EVERYTHING]


def test_responses_without_stream(client: OpenAI) -> None:
    response = client.responses.create(model="m", input="go", tools=[{"type": "apply_patch"}])
    Response.model_validate(response.to_dict())
    assert response.output_text == "Let me look at the files in this directory."
    assert response.model == "m" and response.tools[0].type == "apply_patch"


def test_raw_chat_stream_is_valid_chunk_by_chunk(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "go"}], stream=True, stream_options={"include_usage": True}
        )
    )
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.to_dict())
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 120 and chunks[-1].choices == []
    assert chunks[-2].choices[0].finish_reason == "tool_calls"


def test_chat_stream_helper_gives_the_same_calls(client: OpenAI) -> None:
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "go"}]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.content == "Let me look at the files in this directory."
    assert message.refusal == "I will not do that, sorry."
    assert _calls(message.tool_calls) == CHAT_CALLS


def test_chat_without_stream(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}])
    ChatCompletion.model_validate(completion.to_dict())
    message = completion.choices[0].message
    assert message.content == "Let me look at the files in this directory."
    assert _calls(message.tool_calls) == CHAT_CALLS
    assert getattr(message, "reasoning_content", None) == "Look first.\nThen act.\nraw thought"


CHAT_CALLS = [
    ("call_1", "shell_command", ARGUMENTS),
    ("call_2", "mcp__demo__echo", '{"text":"hi"}'),
    ("call_3", "apply_patch", '{"input":"' + PATCH.replace("\n", "\\n") + '"}'),
    ("call_4", "shell", '{"commands":["ls -la","git status --short --branch"],"timeout_ms":1000}'),
    ("call_5", "local_shell", '{"type":"exec","command":["ls","-l"],"env":{},"working_directory":"/tmp"}'),
    ("call_6", "apply_patch", '{"type":"update_file","path":"a.txt","diff":"@@\\n-a\\n+b\\n"}'),
]


def _calls(tool_calls: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in tool_calls]


async def test_the_async_client_in_the_same_process() -> None:
    with ScriptedModel(["one", "two"]) as model:
        async with AsyncOpenAI(base_url=model.base_url, api_key="unused", max_retries=0) as client:
            assert (await client.responses.create(model="m", input="go")).output_text == "one"
            async with client.responses.stream(model="m", input="go") as stream:
                assert (await stream.get_final_response()).output_text == "two"
        model.check()


def test_models_are_listed() -> None:
    with ScriptedModel(models=["a", "b"]) as model, OpenAI(base_url=model.base_url, api_key="unused") as client:
        assert [entry.id for entry in client.models.list()] == ["a", "b"]
