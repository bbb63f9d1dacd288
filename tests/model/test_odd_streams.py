"""What comes over the wire in forms that nobody documents: read as what it means, or told, and never an exception."""

import json
from collections.abc import Sequence

import pytest

from ferrule.model.calls import sendable
from ferrule.model.refusals import as_model_error, read_error
from ferrule.model.retry import stated_in_headers, stated_in_words
from ferrule.model.stream import CallUnreadable, Completed, ContextOverflow, PassedOver, ToolInputDelta
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.json_text import decode
from ferrule.protocol.specs import Wire
from tests.model.streams import completed, created, done, message
from tests.model.support import Outcome, function, replay, request, sse, words


def chunk(delta: dict[str, object], finish: str | None = None, index: int = 0) -> dict[str, object]:
    return {"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def call(arguments: str | None = None, name: str | None = None, call_id: str | None = None) -> dict[str, object]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{"index": 0, "function": function, **({"id": call_id} if call_id else {})}]}


def calls(found: Outcome) -> list[tuple[str, str]]:
    return [(view.name, view.arguments) for view in found.views if isinstance(view, FunctionCall)]


DEEP = b'data: {"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n\n"
BAD = {
    "list": b"data: [1, 2]\n\n",
    "torn list": b"data: [1,\n\n",
    "truncated": b'data: {"id":"c","choices":[{"del\n\n',
    "NaN": b'data: {"type":"x","n":NaN}\n\n',
    "surrogate": b'data: {"type":"x","s":"\\ud800"}\n\n',
    "bytes": b'data: {"type":"x","s":"\xff"}\n\n',
    "range": b'data: {"type":"x","n":1e999,"i":123456789012345678901234567890}\n\n',
    "digits": b'data: {"n":' + b"9" * 5000 + b"}\n\n",
    "deep": DEEP,
    "words": b"event: keep-alive\ndata: keep-alive\n\n",
    "ping": b"event: ping\ndata: ping\n\n",
    "null": b"data: null\n\n",
    "calls": b'data: {"choices":[{"delta":{"tool_calls":[null]}}]}\n\n',
    "numbers": b'data: {"choices":5,"usage":[]}\n\n',
    "usage": b'data: {"usage":{"prompt_tokens_details":{"cached_tokens":"many"}}}\n\n',
    "item": b'data: {"type":"response.output_item.done","item":5,"output_index":"x"}\n\n',
}
GOOD: dict[Wire, Sequence[bytes]] = {
    "chat": (sse(chunk({"content": "he"})), sse(chunk({"content": "llo"}), chunk({}, "stop"), "[DONE] behind")),
    "responses": (sse(created()), sse(done(0, **message("hello")), completed(), "[DONE] behind")),
}


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("name", BAD)
async def test_f01_f02_s21_a_payload_that_cannot_be_read_is_passed_over(wire: Wire, name: str) -> None:
    first, second = GOOD[wire]
    found = await replay(wire, [first, BAD[name], BAD[name], second])
    assert found.error is None
    assert words(found) == ["hello"] and found.of(Completed)
    told = len(found.of(PassedOver))
    unreadable = (
        "list",
        *(["usage"] if wire == "chat" else []),
        "torn list",
        "truncated",
        "deep",
        "null",
        *(["digits"] if wire == "responses" else []),
    )
    assert told == (name in unreadable)
    if name == "deep":
        assert [event.kind for event in found.of(PassedOver)] == ["is nested too deeply"]


async def test_s21_arguments_without_an_end_of_nesting_stop_no_stream_and_no_request() -> None:
    """Whether a call is whole, and whether it can be sent again, is asked of its arguments."""
    deep = '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"
    parts = [chunk(call(deep, "shell", "c1")), chunk(call("{}", "shell")), chunk({}, "tool_calls")]
    found = await replay("chat", sse(*parts, "[DONE]"), request(tools=TOOLS))
    assert calls(found)
    assert sendable(deep).startswith('{"arguments":')


async def test_f01_a_lost_part_of_a_call_is_no_part_of_a_command() -> None:
    torn = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x\n\n'
    found = await replay(
        "chat", [sse(chunk(call('{"a":"', "shell", "c1"))), torn, sse(chunk(call('"}')), chunk({}, "tool_calls"))]
    )
    assert found.error is not None and found.error.retryable and calls(found) == []


async def test_m010_words_of_an_error_event_are_the_servers_error() -> None:
    found = await replay("chat", b"event: error\ndata: Too many requests, please slow down\n\n")
    assert found.error is not None and found.error.retryable
    assert "reported an error: Too many requests" in str(found.error)


TOOLS = (function("shell"), function("shell_command"))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([call(None, "shel", "i"), call(None, "l_command"), call('{"a":1}')], [("shell_command", '{"a":1}')]),
        ([call(None, "shell", "i"), call(None, "_command"), call('{"a":1}')], [("shell_command", '{"a":1}')]),
        ([call(None, "sh", "i"), call(None, "shell_com"), call("{}", "mand")], [("shell_command", "{}")]),
        ([call("{}", "shell", "i"), call('{"a":1}')], [("shell", '{"a":1}')]),
        ([call("{}", "shell"), call('{"a":1}', "shell")], [("shell", '{"a":1}')]),
        ([call('{"a":1}', "shell<|channel|>commentary", "i")], [("shell", '{"a":1}')]),
        ([call('{"a":1}', "functions.shell:0", "i")], [("shell", '{"a":1}')]),
        ([call('{"a":1}', "<|tool|>shell_command:12", "i")], [("shell_command", '{"a":1}')]),
    ],
)
async def test_m028_m030_names_and_arguments_in_pieces(
    parts: list[dict[str, object]], expected: list[tuple[str, str]]
) -> None:
    events = [*map(chunk, parts), chunk({}, "tool_calls")]
    found = await replay("chat", sse(*events, "[DONE]"), request(tools=TOOLS))
    assert calls(found) == expected


async def test_m028_what_came_before_the_name_is_told_with_it() -> None:
    parts = [call('{"a":1}', None, "i"), call(None, "shell", "i")]
    found = await replay("chat", sse(*map(chunk, parts), chunk({}, "tool_calls"), "[DONE]"))
    assert calls(found) == [("shell", '{"a":1}')]
    assert "".join(event.delta for event in found.of(ToolInputDelta)) == '{"a":1}'


async def test_m029_a_reason_to_finish_ends_nothing_before_the_stream_does() -> None:
    found = await replay(
        "chat", sse(chunk({"content": "let me"}, "stop"), chunk(call("{}", "shell", "i")), chunk({}, "tool_calls"))
    )
    assert words(found) == ["let me"] and calls(found) == [("shell", "{}")]


async def test_m003_each_chunk_may_name_a_reason_to_finish() -> None:
    found = await replay(
        "chat",
        sse(*(chunk({"content": part}, "stop") for part in ("a", "b")), chunk(call('{"a', "shell", "i"), "stop"),
            chunk(call('":1}'), "stop"), "[DONE]"),
    )  # fmt: skip
    assert words(found) == ["ab"] and calls(found) == [("shell", '{"a":1}')]
    found = await replay("chat", sse(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "length"), "[DONE]"))
    assert words(found) == ["ab"] and found.of(Completed)[0].incomplete == "max_output_tokens"


async def test_m027_a_call_may_stand_in_the_second_choice() -> None:
    second = chunk(call("{}", "shell", "i"), "tool_calls", index=1)
    found = await replay("chat", sse(chunk({"content": "let me"}, "stop"), second, "[DONE]"))
    assert words(found) == ["let me"] and calls(found) == [("shell", "{}")]


def choice(index: int, delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    return chunk(delta, finish, index)


@pytest.mark.parametrize(
    ("events", "said", "cut"),
    [
        ([choice(1, call("{}", "shell", "i")), choice(0, {"content": "hi"}), choice(0, {}, "stop")], ["hi"], None),
        ([choice(0, {"content": "hi"}), choice(2, {}, "error"), choice(0, call("{}", "shell", "i")),
          choice(0, {}, "stop")], ["hi"], None),
        ([choice(0, {"content": "hi"}), choice(1, call("{}", "shell", "i"), "length")], ["hi"], "max_output_tokens"),
        ([choice(0, {"content": "hi"}), choice(1, {"content": "no"}), choice(0, call("{}", "shell", "i")),
          choice(1, call('{"b":1}', "shell", "j")), choice(0, {}, "stop")], ["hi"], None),
    ],
)  # fmt: skip
async def test_m027_other_choices_add_nothing_of_what_one_has_said(
    events: list[dict[str, object]], said: list[str], cut: str | None
) -> None:
    found = await replay("chat", sse(*events, "[DONE]"))
    assert found.error is None and words(found) == said and calls(found) == [("shell", "{}")]
    assert found.of(Completed)[0].incomplete == cut


OVERFLOW = '{"code":400,"message":"the request exceeds the available context size (8192 tokens)"}'


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize(
    "tail",
    [f"error: {OVERFLOW}\ndata: [DONE]\n\n", f"error: {OVERFLOW}\n\n",
     f'{{"error":{OVERFLOW}}}\n', f'{{\n"error":\n{OVERFLOW}\n}}'],
)  # fmt: skip
@pytest.mark.parametrize("begun", [True, False])
async def test_m058_an_error_that_is_no_event_is_the_servers_error(wire: Wire, tail: str, begun: bool) -> None:
    text = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "Part of"}
    head = sse(chunk({"content": "Part of"}) if wire == "chat" else text) if begun else b""
    found = await replay(wire, head + tail.encode())
    assert isinstance(found.error, ContextOverflow)
    assert "available context size" in str(found.error)
    assert (found.error.partial is not None) is begun


@pytest.mark.parametrize("status", [429, None])
def test_m023_a_rate_limit_is_no_overflow(status: int | None) -> None:
    error = {"message": "Too many tokens, please wait before trying again.", "type": "throttling_error", "code": "429"}
    read = read_error({"error": error})
    assert read is not None
    told = as_model_error(read, "Box", status=status)
    assert not isinstance(told, ContextOverflow) and told.retryable


def test_m024_a_name_that_is_too_long_is_no_overflow() -> None:
    error = {"message": "string too long", "code": "string_above_max_length", "param": "input[3].call_id"}
    read = read_error({"error": error})
    assert read is not None and not isinstance(as_model_error(read, "Box", status=400), ContextOverflow)


def test_m018_a_failure_without_a_code_is_asked_again() -> None:
    read = read_error({"error": {"message": "something went wrong"}})
    assert read is not None and as_model_error(read, "Box").retryable


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        ({"code": "model_overloaded"}, True),
        ({"code": "unknown_error"}, True),
        ({"type": "upstream_auth_timeout"}, True),
        ({"code": 502}, True),
        ({"code": 408}, True),
        ({"code": 404}, False),
        ({"code": "invalid_prompt"}, False),
        ({"type": "invalid_request_error"}, False),
        ({"status": "FAILED_PRECONDITION"}, False),
        ({"type": "BadRequestError"}, False),
        ({"code": "odd", "param": "tools"}, False),
    ],
)
def test_m018_what_the_request_is_to_blame_for_is_not_asked_again(fields: dict[str, object], passes: bool) -> None:
    read = read_error({"error": {"message": "it went wrong", **fields}})
    assert read is not None and as_model_error(read, "Box").retryable is passes


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("Please try again in 1m3.5s.", 63_500),
        ("try again in 20s", 20_000),
        ("try again in 1min30s", 90_000),
        ("Try again in 2 minutes", 120_000),
        ("please wait 30 seconds", 30_000),
        ("Please retry in 36.4s", 36_400),
    ],
)
def test_m006_waits_in_words(text: str, wait: int) -> None:
    assert stated_in_words(text) == wait


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "1500"}, 1500),
        ({"retry-after": "2.5"}, 2500),
        ({"retry-after": "Thu, 01 Jan 1970 00:16:50 GMT"}, 10_000),
        ({"x-ratelimit-reset-requests": "1m3.5s"}, 63_500),
        ({"x-ratelimit-reset-tokens": "6ms", "x-ratelimit-remaining-tokens": "9",
          "x-ratelimit-reset-requests": "2s", "x-ratelimit-remaining-requests": "0"}, 2000),
        ({"x-ratelimit-reset": "1005"}, 1_005_000),
        ({"x-ratelimit-reset": "1741305600000"}, 1_741_305_600_000 - 1_000_000),
        ({"anthropic-ratelimit-tokens-reset": "1970-01-01T00:17:00Z"}, 20_000),
        ({"retry-after": "soon"}, None),
    ],
)  # fmt: skip
def test_m006_waits_in_headers(headers: dict[str, str], wait: int | None) -> None:
    assert stated_in_headers(headers, 1000.0, limited=True) == wait


def test_m006_the_wait_of_google_and_of_a_gateway() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36s"}]
    google = read_error([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "q", "details": details}}])
    assert google is not None and as_model_error(google, "G", status=429).retry_after_ms == 36_000
    nan = read_error({"error": {"code": 429, "message": "q", "retry_after": "nan"}})
    assert nan is not None and as_model_error(nan, "G", status=429).retry_after_ms is None


async def test_m007_a_call_that_groq_could_not_read_is_told_as_one() -> None:
    error = {"error": {"message": "Failed to call", "code": "tool_use_failed", "failed_generation": "{oops"}}
    found = await replay("chat", sse(chunk({"reasoning": "hm"})) + b"event: error\n" + sse(error))
    assert isinstance(found.error, CallUnreadable) and found.error.generation == "{oops"


def test_f10_arguments_that_end_early_are_quoted() -> None:
    for text in ('{"cmd":"ls -la', '{"cmd":"ls -la",'):
        with pytest.raises(RespondToModel) as refused:
            decode(text)
        assert "ls -la" in str(refused.value) and "at at" not in str(refused.value)


async def test_m012_events_that_come_twice_or_are_lost_give_the_same_call_or_an_error() -> None:
    arguments = json.dumps({"cmd": "ls -la"})
    item = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "shell"}
    raw: list[dict[str, object]] = [
        created(), {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
        *({"type": "response.function_call_arguments.delta", "item_id": "fc", "output_index": 0, "delta": part}
          for part in (arguments[:5], arguments[5:9], arguments[9:])),
        completed(),
    ]  # fmt: skip
    events = [{**event, "sequence_number": number} for number, event in enumerate(raw)]
    for place in range(len(events)):
        twice = await replay("responses", sse(*events[: place + 1], *events[place:]))
        assert calls(twice) == [("shell", arguments)]
    for place in range(1, 5):
        lost = await replay("responses", sse(*events[:place], *events[place + 1 :]))
        assert (lost.error is not None and lost.error.retryable) or calls(lost) == [("shell", arguments)]
