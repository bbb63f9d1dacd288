# ruff: noqa: E501 - payloads read better in one line
"""Streams by name, as servers are known to send them. Every test of a stream reads it from here, and each is also
replayed in a thousand splits."""

from collections.abc import Sequence
from itertools import count

from ferrule.protocol.specs import Wire
from ferrule.testing import (
    Edit,
    Item,
    StreamError,
    Usage,
    custom_tool_call,
    defects,
    function_call,
    messages_wire,
    reasoning,
    refusal,
    step,
)
from ferrule.testing.items import complete
from ferrule.testing.steps import End
from tests.model.support import capture, sse

CITY = '{"city":"SF"}'


def created(response_id: str = "resp_1") -> dict[str, object]:
    return {"type": "response.created", "response": {"id": response_id, "status": "in_progress", "output": []}}


def completed(*output: object, **fields: object) -> dict[str, object]:
    response = {"id": "resp_1", "status": "completed", "output": list(output), **fields}
    return {"type": "response.completed", "response": response}


def added(index: int, **item: object) -> dict[str, object]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, **item: object) -> dict[str, object]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text(index: int, item_id: str, delta: str) -> dict[str, object]:
    return {"type": "response.output_text.delta", "output_index": index, "item_id": item_id, "delta": delta}


def arguments(index: int, item_id: str, delta: str) -> dict[str, object]:
    return {"type": "response.function_call_arguments.delta", "output_index": index, "item_id": item_id, "delta": delta}


def message(words: str = "Checking.", item_id: str = "msg_1") -> dict[str, object]:
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": [part]}


def call(
    body: str = CITY, item_id: str = "fc_1", call_id: str = "call_1", name: str = "get_weather"
) -> dict[str, object]:
    fields: dict[str, object] = {
        "type": "function_call",
        "id": item_id,
        "call_id": call_id,
        "name": name,
        "arguments": body,
    }
    return fields | {"status": "completed"}


_OPENED = (
    created(),
    added(0, type="message", id="msg_1", role="assistant", content=[]),
    text(0, "msg_1", "Checking."),
)
_CALL_ADDED = added(1, type="function_call", id="fc_1", call_id="call_1", name="get_weather", arguments="")
_ARGUMENTS_DONE = {
    "type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 1, "arguments": CITY,
}  # fmt: skip

B089 = {
    "only arguments.done": sse(
        *_OPENED, done(0, **message()), _CALL_ADDED, _ARGUMENTS_DONE, done(1, **call("")), completed()
    ),
    "no item.done": sse(
        *_OPENED, _CALL_ADDED, arguments(1, "fc_1", '{"city":'), arguments(1, "fc_1", '"SF"}'),
        completed(message(), call("")),
    ),
    "closed but never opened": sse(created(), done(0, **message()), done(1, **call()), completed(message(), call())),
    "text done, then calls at its place": sse(
        *_OPENED, done(0, **message()), {**_CALL_ADDED, "output_index": 0}, arguments(0, "fc_1", CITY),
        done(0, **call()), completed(message(), call()),
    ),
    "empty deltas": sse(
        *_OPENED, text(0, "msg_1", ""), done(0, **message()), _CALL_ADDED, arguments(1, "fc_1", ""),
        arguments(1, "fc_1", CITY), arguments(1, "fc_1", ""), done(1, **call()), completed(message(), call()),
    ),
    "no response id": sse(
        {"type": "response.created", "response": {}}, *_OPENED[1:], done(0, **message()), _CALL_ADDED,
        arguments(1, "fc_1", CITY), done(1, **call()), {"type": "response.completed", "response": {"output": []}},
    ),
    "only the final response": sse(created(), completed(message(), call())),
    "deltas alone": sse(*_OPENED, _CALL_ADDED, arguments(1, "fc_1", CITY), completed()),
    "deltas before anything was opened": sse(
        created(), text(0, "msg_1", "Checking."), arguments(1, "fc_1", '{"city"'), arguments(1, "fc_1", ':"SF"}'),
        completed(message(), call()),
    ),
    "another id in every event": sse(
        created(), added(0, type="message", id="a", role="assistant", content=[]), text(0, "b", "Checking."),
        done(0, **message(item_id="c")), {**_CALL_ADDED}, arguments(1, "d", '{"city":'), arguments(1, "e", '"SF"}'),
        done(1, **call(item_id="f")), completed(message(item_id="g"), call(item_id="h")),
    ),
    "no index at all": sse(
        created(), {"type": "response.output_item.added", "item": {"type": "message", "id": "msg_1"}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Checking."},
        {"type": "response.output_item.done", "item": message()},
        {"type": "response.output_item.done", "item": call()}, completed(message(), call()),
    ),
    "item.done twice": sse(*_OPENED, done(0, **message()), done(0, **message()), done(1, **call()), done(1, **call()),
                           completed(message(), call())),
    "final response numbered anew": sse(
        created(), added(3, type="message", id="x", role="assistant", content=[]), text(3, "x", "Checking."),
        done(3, **message(item_id="x")), done(4, **call()), completed(message(item_id="y"), call(item_id="z")),
    ),
    "one JSON body instead of a stream": sse({
        "object": "response", "id": "resp_1", "status": "completed", "output": [message(), call()],
    }),
}  # fmt: skip


def chunk(delta: object = None, finish: str | None = None, **fields: object) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **fields}


def tool(index: int | None, name: str | None = None, body: object = None, **fields: object) -> dict[str, object]:
    function = {key: value for key, value in (("name", name), ("arguments", body)) if value is not None}
    entry = {"function": function, **({} if index is None else {"index": index}), **fields}
    return chunk({"tool_calls": [entry]})


USAGE = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
END = (chunk({}, "tool_calls"), "[DONE]")

B061 = {
    "index 0 for both": sse(
        tool(0, "read_file", '{"p":"a"}', id="c1"), tool(0, "read_file", '{"p":"b"}', id="c2"), *END
    ),
    "index 0 for both, in pieces": sse(
        tool(0, "read_file", "", id="c1"), tool(0, None, '{"p":'), tool(0, None, '"a"}'),
        tool(0, "read_file", "", id="c2"), tool(0, None, '{"p":'), tool(0, None, '"b"}'), *END,
    ),
    "id and name on every chunk": sse(
        tool(0, "read_file", '{"p"', id="c1"), tool(0, "read_file", ':"a"}', id="c1"),
        tool(1, "read_file", '{"p"', id="c2"), tool(1, "read_file", ':"b"}', id="c2"), *END,
    ),
    "no index": sse(tool(None, "read_file", '{"p":"a"}', id="c1"), tool(None, "read_file", '{"p":"b"}', id="c2"), *END),
    "interleaved": sse(
        tool(0, "read_file", '{"p"', id="c1"), tool(1, "read_file", '{"p"', id="c2"), tool(0, None, ':"a"}'),
        tool(1, None, ':"b"}'), *END,
    ),
    "said whole once more at the end": sse(
        tool(0, "read_file", '{"p":', id="c1"), tool(0, None, '"a"}'), tool(0, "read_file", '{"p":"a"}', id="c1"),
        tool(1, "read_file", '{"p":"b"}', id="c2"), *END,
    ),
    "another id on every piece": sse(
        tool(0, "read_file", '{"p":', id="c1"), tool(0, None, '"a"}', id="x1"), tool(1, "read_file", '{"p":', id="c2"),
        tool(1, None, '"b"}', id="x2"), *END,
    ),
    "both in one chunk": sse(
        chunk({"tool_calls": [
            {"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": '{"p":"a"}'}},
            {"index": 1, "id": "c2", "function": {"name": "read_file", "arguments": {"p": "b"}}},
        ]}), *END,
    ),
    "one JSON body instead of a stream": sse({
        "object": "chat.completion", "id": "chatcmpl-1", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"p":"a"}'}},
                {"id": "c2", "type": "function", "function": {"name": "read_file", "arguments": '{"p":"b"}'}},
            ]}}],
    }),
}  # fmt: skip

CHAT: dict[str, bytes] = {
    "turn": capture("chat_turn"),
    "azure": capture("azure_chat"),
    "crlf": capture("chat_turn").replace(b"\n", b"\r\n"),
    "b068": sse(tool(0, "exec_command", '{"cmd":"echo', id="c1"), *END),
    "b062 empty": sse(tool(0, "exec_command", "", id="c1"), *END),
    "b062 null": sse(chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "exec_command", "arguments": None}}]}), *END),
    "b062 blank": sse(tool(0, "exec_command", "   ", id="c1"), *END),
    "b064": sse(tool(0, "exec_command", '{"cmd":"ls"}', id="c1"), tool(0, None, '{"cmd":"pwd"}'), *END),
    "b070 empty": sse(chunk({"content": "hi", "tool_calls": []}), *END),
    "b070 absent": sse(chunk({"content": "hi"}), *END),
    "b070 one message": sse(
        {"choices": [{"message": {"content": "hi", "tool_calls": []}, "finish_reason": "tool_calls"}]}, "[DONE]"
    ),
    "b071": sse(
        tool(0, "exec_command", '{"cmd":"ls"}', id="c1"), chunk({}, "tool_calls"),
        tool(0, "exec_command", '{"cmd":"ls"}', id="c1"), chunk({"content": ""}, "tool_calls", usage=USAGE), "[DONE]",
    ),
    "b071 text": sse(
        chunk({"content": "hi"}), chunk({}, "stop"), chunk({"content": "hi"}, "length", usage=USAGE), "[DONE]"
    ),
    "b076 code": sse({"error": {"code": 429, "message": "queue full"}}, "[DONE]"),
    "b076 flat": sse({"choices": None, "error_type": "BadRequestError", "error_message": "context length exceeded"}),
    "b076 text then error": sse(
        chunk({"content": "Half a "}), tool(0, "exec_command", '{"cmd":', id="c1"),
        {"error": {"message": "upstream died", "type": "server_error"}}, "[DONE]",
    ),
    "b076 error as text": sse(chunk({"content": "Half"}), {"error": "model crashed"}),
    "b082 same id twice": sse(
        tool(0, "exec_command", '{"cmd":"a"}', id="call_x"), tool(1, "exec_command", '{"cmd":"b"}', id="call_x"), *END
    ),
    "b085": sse(
        chunk({"tool_calls": [{"index": 0, "function": {"id": "c1", "name": "shell", "arguments": ""}}]}),
        tool(0, "shell", '{"a"'), tool(0, None, ":1}"), *END,
    ),
    "b085 aborted": sse(
        chunk({"tool_calls": [{"index": 0, "function": {"id": "c1", "name": "shell", "arguments": ""}}]}),
        tool(0, "shell", '{"a"'),
    ),
    "b085 no id": sse(tool(0, "shell", '{"a":1}'), *END),
    "b088 filter": sse(chunk({"content": "I "}), tool(0, "shell", '{"a"', id="c1"), chunk({}, "content_filter"), "[DONE]"),
    "length": sse(chunk({"content": "Too lo"}), chunk({}, "length"), chunk(None, None, usage=USAGE), "[DONE]"),
    "legacy function_call": sse(
        chunk({"function_call": {"name": "shell", "arguments": '{"a"'}}), chunk({"function_call": {"arguments": ":1}"}}),
        chunk({}, "function_call"), "[DONE]",
    ),
    "native custom": sse(
        chunk({"tool_calls": [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** "}}]}),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": "Begin"}}]}), *END,
    ),
    "parts": sse(chunk({"content": [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."},
    ]}), chunk({}, "stop"), "[DONE]"),
    "split surrogates": sse(
        r'{"id":"x","choices":[{"delta":{"content":"a \ud83d"}}]}', r'{"id":"x","choices":[{"delta":{"content":"\udd27"}}]}',
        chunk({}, "stop"), "[DONE]",
    ),
    "no finish": sse(chunk({"content": "All "}), chunk({"content": "said"}), "[DONE]"),
    "no done": sse(chunk({"content": "All said"}), chunk({}, "stop")),
    "broken after the finish": sse(chunk({"content": "All said"}), chunk({}, "stop"), {"error": {"message": "late"}}),
    "closed early": sse(chunk({"content": "Half"})),
    "cut in an event": sse(chunk({"content": "Half"})) + b'data: {"id":"chatcmpl-1","choices":[{"de',
    "nothing": b"",
    "not json": sse("<html>"),
}  # fmt: skip
CHAT |= {f"b061 {name}": data for name, data in B061.items()}

RESPONSES: dict[str, bytes] = {
    "turn": capture("responses_turn"),
    "cr": capture("responses_turn").replace(b"\n", b"\r"),
    "b077": sse(created(), done(0, **call())),
    "b079": sse(
        created(), {"type": "error", "error": {"type": "usage_limit_reached", "message": "limit", "resets_in_seconds": 9568}}
    ),
    "b082": sse(
        created(), done(0, **call(item_id="fc_1", call_id="call_x")),
        done(1, **call('{"city":"LA"}', item_id="fc_2", call_id="call_x")), completed(),
    ),
    "b082 in the final response": sse(
        created(), done(0, **call(item_id="fc_1", call_id="call_x")),
        completed(call(item_id="fc_1", call_id="call_x"), call('{"city":"LA"}', item_id="fc_2", call_id="call_x")),
    ),
    "ended twice": sse(created(), done(0, **message()), completed(message()), completed(message(), call()), {"error": "late"}),
    "error flat": sse(created(), {"type": "error", "code": "server_error", "message": "try later", "param": None}),
    "error nested": sse(created(), {"type": "error", "status": 500, "error": {"code": "server_error", "message": "oops"}}),
    "error untyped": sse(created(), {"error": {"message": "oops", "code": "invalid_prompt"}}),
    "failed": sse(created(), {"type": "response.failed", "response": {
        "id": "resp_1", "status": "failed", "error": {"code": "context_length_exceeded", "message": "too long"}}}),
    "failed after text": sse(*_OPENED, {"type": "response.failed", "response": {
        "id": "resp_1", "error": {"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}}}),
    "incomplete": sse(
        *_OPENED, done(0, **{**message("Checki"), "status": "incomplete"}),
        {"type": "response.incomplete", "response": {"id": "resp_1", "incomplete_details": {"reason": "max_output_tokens"}}},
    ),
    "incomplete in a patch": sse(
        created(), added(0, type="custom_tool_call", id="ctc_1", call_id="call_1", name="apply_patch", input=""),
        {"type": "response.custom_tool_call_input.delta", "item_id": "ctc_1", "output_index": 0, "delta": "*** Begin"},
        {"type": "response.incomplete", "response": {"id": "resp_1", "incomplete_details": {"reason": "max_output_tokens"}}},
    ),
    "filtered": sse(
        *_OPENED, {"type": "response.incomplete", "response": {"id": "r", "incomplete_details": {"reason": "content_filter"}}}
    ),
    "odd ending": sse(*_OPENED, done(0, **message()), completed(usage={"input_tokens": "many"}, error="none")),
    "b082 without ids or places": sse(
        created(), *({"type": "response.output_item.done", "item": {
            "type": "function_call", "call_id": "call_x", "name": "get_weather", "arguments": f'{{"city":"{city}"}}'}}
            for city in ("SF", "LA", "LA")), completed(),
    ),
    "text after a call at its place": sse(
        created(), _CALL_ADDED, text(1, "msg_9", "Hm."), arguments(1, "fc_1", CITY), done(1, **call()), completed(),
    ),
    "names": sse(
        created(), done(0, **call(name="shell\n")), done(1, **call(name="functions.exec_command", item_id="b", call_id="b")),
        completed(),
    ),
    "empty arguments": sse(created(), done(0, **call("")), done(1, **{**call(item_id="b", call_id="b"), "arguments": None}), completed()),
    "no call id": sse(created(), done(0, type="function_call", id="fc_1", name="get_weather", arguments=CITY), completed()),
    "freeform as a function": sse(
        created(), added(0, type="function_call", id="fc_1", call_id="call_1", name="apply_patch", arguments=""),
        arguments(0, "fc_1", '{"inp'), arguments(0, "fc_1", 'ut": "a\\'), arguments(0, "fc_1", 'n\\"b\\ud83d'),
        arguments(0, "fc_1", '\\udd27"}'),
        done(0, **call('{"input": "a\\n\\"b\\ud83d\\udd27"}', name="apply_patch")), completed(end_turn=False),
    ),
    "closed early": sse(*_OPENED),
    "unknown events": sse(
        created(), {"type": "response.future.delta", "delta": "x"}, {"type": "keepalive"}, "3", "null", '"x"',
        {"type": "response.output_text.delta", "delta": {"not": "text"}}, done(0, **message()), completed(message()), "[DONE]",
    ),
}  # fmt: skip
RESPONSES |= {f"b089 {name}": data for name, data in B089.items()}


def played(*items: Item | str, edits: Sequence[Edit] = (), end: End = "completed", chars: int = 5) -> bytes:
    """A stream of the Messages API, as the scripted model plays it."""
    numbers = count(1)
    said = step(*items, edits=edits, end=end, delta_chars=chars)
    output = complete(said.items, lambda prefix: f"{prefix}_{next(numbers)}")
    whole = messages_wire.message({"model": "m"}, "msg_1", said, output, Usage(100, 20, 64, 7, 30))
    events = messages_wire.stream(whole, said, output)
    for edit in said.edits:
        events = list(edit(events))
    return said.framing.encode(events)


_THOUGHT = reasoning(text="Grüße 🔧 first.", encrypted_content="c2ln")
_SEARCH: list[Item] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "page", "n": 1}]},
]
MESSAGES: dict[str, bytes] = {
    "a turn": played(
        _THOUGHT, "Let me look.", function_call("get_weather", {"city": "SF"}), function_call("shell"),
        custom_tool_call("apply_patch", "a\n\"b🔧"),
    ),
    "interleaved": played(_THOUGHT, "A.", {"type": "redacted_thinking", "data": "eHg="}, "B.", "C.", *_SEARCH, "D."),
    "paused": played("Searching.", _SEARCH[0], edits=[defects.stop_reason("pause_turn")]),
    "cut in a call": played("So.", function_call("shell", '{"cmd": "l'), edits=[defects.stop_reason("max_tokens")]),
    "cut in words": played("Half a", end="max_output_tokens"),
    "refused": played("No", refusal("It may do harm.")),
    "a full window": played("Half a", edits=[defects.stop_reason("model_context_window_exceeded")]),
    "broken off": played(_THOUGHT, function_call("shell"), "Half a", end=StreamError("Overloaded", type="overloaded_error")),
    "closed early": played("Half a", end="missing"),
    "a name in tokens": played(function_call("functions.get_weather", {"city": "SF"})),
    "no arguments that are JSON": played(function_call("shell", '{"cmd": ')),
    "empty deltas": played("Hi", function_call("shell", {"cmd": "ls"}), edits=[defects.empty_deltas]),
    "unknown events": played("Hi", edits=[defects.insert({"type": "future"}, before="message_stop")]),
}  # fmt: skip

ALL: list[tuple[Wire, str, bytes]] = [
    *(("messages", name, data) for name, data in MESSAGES.items()),
    *(("responses", name, data) for name, data in RESPONSES.items()),
    *(("chat", name, data) for name, data in CHAT.items()),
]
