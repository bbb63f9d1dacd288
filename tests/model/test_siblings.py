# ruff: noqa: E501 - payloads read better in one line
"""Forms of the known oddities in other words and at other places, as other servers would send them."""

import json
from typing import Any

import pytest

from ferrule.model.stream import Completed
from ferrule.protocol.specs import Wire
from tests.model.streams import added, arguments, chunk, completed, created, done, message, text, tool
from tests.model.support import function, replay, request, sse, words
from tests.model.test_odd_streams import calls

TOOLS = (function("look"), function("shell"))
LOOK = [("look", '{"n":1}')]
ITEM: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": '{"n":1}'}
OPEN = {**ITEM, "arguments": ""}
END = (chunk({}, "tool_calls"), "[DONE]")


def bare(**fields: object) -> dict[str, object]:
    """A chunk with one entry of `tool_calls` as it stands."""
    return chunk({"tool_calls": [fields]})


CALLS: dict[str, tuple[Wire, bytes]] = {
    "arguments as an object": ("chat", sse(tool(0, "look", {"n": 1}, id="i"), *END)),
    "an empty object before the text": ("chat", sse(tool(0, "look", {}, id="i"), tool(0, None, '{"n":1}'), *END)),
    "one entry, no list": ("chat", sse(chunk({"tool_calls": {"id": "i", "function": {"name": "look", "arguments": '{"n":1}'}}}), *END)),
    "no function around it": ("chat", sse(bare(index=0, id="i", name="look", arguments='{"n":1}'), *END)),
    "no function around its pieces": ("chat", sse(bare(index=0, id="i", name="look"), bare(index=0, arguments='{"n":1}'), *END)),
    "names and ids null in later pieces": ("chat", sse(tool(0, "look", '{"n"', id="i"), bare(index=0, id=None, type=None, function={"name": None, "arguments": ":1}"}), *END)),
    "names and ids empty in later pieces": ("chat", sse(tool(0, "look", '{"n"', id="i"), bare(index=0, id="", type="function", function={"name": "", "arguments": ":1}"}), *END)),
    "an id that is a number": ("chat", sse(bare(index=0, id=7, function={"name": "look", "arguments": '{"n":1}'}), *END)),
    "an index that is text": ("chat", sse(bare(index="0", id="i", function={"name": "look", "arguments": '{"n"'}), bare(index="0", function={"arguments": ":1}"}), *END)),
    "no blank line between events": ("chat", sse(tool(0, "look", '{"n"', id="i"), tool(0, None, ":1}"), *END).replace(b"\n\n", b"\n")),
    "another stream's mark": ("chat", sse(tool(0, "look", '{"n"', id="i")) + b"\xef\xbb\xbf" + sse(tool(0, None, ":1}"), *END)),
    "an object in the item": ("responses", sse(created(), done(0, **{**ITEM, "arguments": {"n": 1}}), completed())),
    "an object in arguments.done": ("responses", sse(created(), added(0, **OPEN), {"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 0, "arguments": {"n": 1}}, done(0, **OPEN), completed())),
    "an object as a delta": ("responses", sse(created(), added(0, **OPEN), {**arguments(0, "fc_1", ""), "delta": {"n": 1}}, completed())),
    "no name in the whole item": ("responses", sse(created(), added(0, **OPEN), done(0, **{**ITEM, "name": None}), completed())),
    "no ids at all": ("responses", sse(created(), done(0, **{**ITEM, "id": None, "call_id": ""}), completed())),
    "response.done": ("responses", sse(created(), {"type": "response.done", "response": {"id": "r", "status": "completed", "output": [ITEM]}})),
    "an end without a response": ("responses", sse(created(), done(0, **ITEM), {"type": "response.completed", "response": None})),
    "[DONE] alone": ("responses", sse(created(), done(0, **ITEM), "[DONE]")),
    "events named outside alone": ("responses", b"".join(b"event: %b\ndata: %b\n\n" % (name.encode(), json.dumps(data).encode()) for name, data in (("response.created", {"response": {"id": "r"}}), ("response.output_item.done", {"output_index": 0, "item": ITEM}), ("response.completed", {"response": {"id": "r"}})))),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_m019_m030_m031_a_call_in_other_forms(name: str) -> None:
    wire, data = CALLS[name]
    found = await replay(wire, data, request(tools=TOOLS))
    assert found.error is None and [(called, json.loads(body)) for called, body in calls(found)] == [("look", {"n": 1})]


@pytest.mark.parametrize("body", [[1], 5, True])
async def test_m019_arguments_that_are_no_object_are_not_lost(body: object) -> None:
    found = await replay("chat", sse(tool(0, "look", body, id="i"), *END), request(tools=TOOLS))
    assert calls(found) == [("look", json.dumps(body))]


async def test_m031_calls_without_ids_and_indexes_in_one_delta_are_as_many() -> None:
    entries = [{"function": {"name": "look", "arguments": '{"n":1}'}}] * 2
    found = await replay("chat", sse(chunk({"tool_calls": entries}), *END), request(tools=TOOLS))
    assert calls(found) == LOOK * 2


WORDS: dict[str, tuple[Wire, bytes]] = {
    "a part, no list": ("chat", sse(chunk({"content": {"type": "text", "text": "Hi."}}, "stop"), "[DONE]")),
    "the whole message behind its deltas": ("chat", sse(chunk({"content": "H"}), chunk({"content": "i."}), {"choices": [{"index": 0, "message": {"content": "Hi."}, "finish_reason": "stop"}]}, "[DONE]")),
    "messages in place of deltas": ("chat", sse(*({"choices": [{"index": 0, "message": {"content": part}}]} for part in ("H", "i.")), chunk({}, "stop"), "[DONE]")),
    "an unknown reason to finish": ("chat", sse(chunk({"content": "Hi."}, "eos_token"), "[DONE]")),
    "an empty entry of calls": ("chat", sse(chunk({"content": "Hi.", "tool_calls": [{"index": 0, "id": "", "function": {"name": "", "arguments": ""}}]}, "stop"), "[DONE]")),
    "usage that is a list": ("chat", sse(chunk({"content": "Hi."}, "stop", usage=[1]), "[DONE]")),
    "only text.done": ("responses", sse(created(), {"type": "response.output_text.done", "item_id": "m", "output_index": 0, "text": "Hi."}, completed())),
    "text.done behind deltas": ("responses", sse(created(), text(0, "m", "Hi."), {"type": "response.output_text.done", "item_id": "m", "output_index": 0, "text": "Hi."}, completed())),
    "null closes the streamed message": ("responses", sse(created(), text(0, "m", "Hi."), done(0, type="message", id="m", role="assistant", content=None), completed())),
    "content as text": ("responses", sse(created(), done(0, type="message", id="m", role="assistant", content="Hi."), completed())),
    "status incomplete": ("responses", sse(created(), {"type": "response.completed", "response": {"id": "r", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [message("Hi.")]}})),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
async def test_m019_m029_words_in_other_forms(name: str) -> None:
    wire, data = WORDS[name]
    found = await replay(wire, data, request(tools=TOOLS))
    assert found.error is None and words(found) == ["Hi."] and calls(found) == []
    assert found.of(Completed)[0].incomplete == ("max_output_tokens" if name == "status incomplete" else None)


@pytest.mark.parametrize(
    ("reason", "again"),
    [
        ("ERROR", True), ("timeout", True), ("cancelled", True), ("MALFORMED_FUNCTION_CALL", True),
        ("malformed_function_call", True), ("function_call_filter: MALFORMED_FUNCTION_CALL", True),
        ("SAFETY", False), ("sensitive", False), ("RECITATION", False),
    ],
)  # fmt: skip
async def test_m020_other_reasons_to_finish_that_are_no_success(reason: str, again: bool) -> None:
    found = await replay("chat", sse(chunk({"content": "Hi."}, reason), "[DONE]"))
    assert found.error is not None and found.error.retryable is again


@pytest.mark.parametrize("reason", ["LENGTH", "max_tokens", "model_length", "MAX_TOKENS"])
async def test_m013_other_words_for_a_cut_answer(reason: str) -> None:
    found = await replay("chat", sse(chunk({"content": "Hi."}, reason), "[DONE]"))
    assert found.of(Completed)[0].incomplete == "max_output_tokens"


ERRORS: dict[str, bytes] = {
    "in the choice": sse({"choices": [{"index": 0, "delta": {}, "error": {"message": "boom", "code": 500}}]}, "[DONE]"),
    "text": sse({"error": "boom"}),
    "a list": sse({"errors": [{"message": "boom"}]}),
    "msg": sse({"status_code": 500, "msg": "boom"}),
    "base_resp": sse({"base_resp": {"status_code": 1002, "status_msg": "boom"}}),
    "named behind its data": b'data: {"message":"boom"}\nevent: error\n\n',
    "response.error": sse({"type": "response.error", "error": {"message": "boom", "code": "server_error"}}),
    "a page": b"<html><body>boom</body></html>\n",
    "bare words": b"upstream: boom",
    "words as data": b"data: error: boom\n\n",
}


OF_ONE_WIRE: dict[str, Wire] = {"in the choice": "chat", "response.error": "responses"}
WIRES: tuple[Wire, ...] = ("chat", "responses")


@pytest.mark.parametrize(
    ("wire", "form"), [(wire, form) for form in ERRORS for wire in WIRES if OF_ONE_WIRE.get(form, wire) == wire]
)
async def test_m010_m058_an_error_at_another_place_is_told_in_the_servers_words(wire: Wire, form: str) -> None:
    part = sse(chunk({"content": "Part"}) if wire == "chat" else text(0, "m", "Part"))
    found = await replay(wire, part + ERRORS[form])
    assert found.error is not None and found.error.retryable and "boom" in str(found.error)
    assert found.error.partial is not None


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("kind", ["response.completed", "response.done", None])
async def test_m018_a_status_counts_more_than_the_name_of_the_event(status: str, kind: str | None) -> None:
    response: dict[str, Any] = {"id": "r", "status": status, "error": None, "output": []}
    end = {**response, "object": "response"} if kind is None else {"type": kind, "response": response}
    found = await replay("responses", sse(end))
    assert found.error is not None and found.error.retryable and status in str(found.error)


async def test_m019_usage_in_the_choice() -> None:
    last = {
        "choices": [
            {"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
        ]
    }
    found = await replay("chat", sse(chunk({"content": "Hi."}), last, "[DONE]"))
    usage = found.of(Completed)[0].usage
    assert usage is not None and (usage.input_tokens, usage.output_tokens) == (5, 2)
