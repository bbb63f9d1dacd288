"""Both wires, event by event, against what the wire documents say; written out by hand."""

from ferrule.testing import ScriptedModel, Usage, function_call, message, step
from tests.testing.client import Client, events

SAID = step(message("Hello"), function_call("f", '{"a":1}'), delta_chars=4, usage=Usage(5, 3))


def test_responses_events_in_order() -> None:
    with ScriptedModel(SAID) as model, Client(model) as client:
        body = client.stream(tools=[{"type": "web_search"}], metadata={"k": "v"})
    assert body.startswith(b"event: response.created\ndata: {") and body.endswith(b"\n\ndata: [DONE]\n\n")
    created, in_progress, *middle, completed = events(body)
    text = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    spoken = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [text]}
    called = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
    called |= {"name": "f", "arguments": '{"a":1}'}
    first: dict[str, object] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    second: dict[str, object] = {"item_id": "fc_1", "output_index": 1}
    expected: list[dict[str, object]] = [
        {"type": "output_item.added", "output_index": 0, "item": spoken | {"status": "in_progress", "content": []}},
        {"type": "content_part.added", **first, "part": text | {"text": ""}},
        {"type": "output_text.delta", **first, "delta": "Hell", "logprobs": []},
        {"type": "output_text.delta", **first, "delta": "o", "logprobs": []},
        {"type": "output_text.done", **first, "text": "Hello", "logprobs": []},
        {"type": "content_part.done", **first, "part": text},
        {"type": "output_item.done", "output_index": 0, "item": spoken},
        {"type": "output_item.added", "output_index": 1, "item": called | {"status": "in_progress", "arguments": ""}},
        {"type": "function_call_arguments.delta", **second, "delta": '{"a"'},
        {"type": "function_call_arguments.delta", **second, "delta": ":1}"},
        {"type": "function_call_arguments.done", **second, "arguments": '{"a":1}'},
        {"type": "output_item.done", "output_index": 1, "item": called},
    ]
    for number, event in enumerate(expected):
        assert middle[number] == {**event, "type": f"response.{event['type']}", "sequence_number": number + 2}
    assert len(middle) == len(expected)
    assert created["response"] == in_progress["response"]
    assert created["response"]["status"] == "in_progress" and created["response"]["output"] == []
    final = completed["response"]
    assert (final["id"], final["status"], final["output"]) == ("resp_1", "completed", [spoken, called])
    assert final["tools"] == [{"type": "web_search"}] and final["metadata"] == {"k": "v"}
    assert final["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
    }
    assert len(final) == 31


def test_chat_chunks_in_order() -> None:
    with ScriptedModel(SAID) as model, Client(model) as client:
        body = client.stream("chat/completions", stream_options={"include_usage": True})
    assert b"event:" not in body and body.endswith(b"\n\ndata: [DONE]\n\n")
    *chunks, last = events(body)
    opened = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert [(chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"]) for chunk in chunks] == [
        ({"role": "assistant", "content": "", "refusal": None}, None),
        ({"content": "Hell"}, None),
        ({"content": "o"}, None),
        ({"tool_calls": [opened]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}, None),
        ({}, "tool_calls"),
    ]
    assert {chunk["id"] for chunk in [*chunks, last]} == {"chatcmpl_1"}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert last["choices"] == [] and last["usage"]["total_tokens"] == 8


def test_texts_of_several_messages_stay_apart_in_chat() -> None:
    with ScriptedModel(step("one", function_call("f"), "two")) as model, Client(model) as client:
        assert client.chat([])["choices"][0]["message"]["content"] == "one\ntwo"
