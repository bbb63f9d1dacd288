"""What comes back from the Messages API: streams, and messages in one piece."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ferrule.model.stream import Completed, ContentFiltered, ContextOverflow, TextDelta
from ferrule.protocol.content import text_of
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import CustomToolCall, FunctionCall, Message, MessageBlock, Reasoning, ResponseItem
from tests.model.claude import (
    END,
    SAID,
    START,
    Json,
    ask,
    block,
    call,
    contents,
    heard,
    result,
    said_text,
    sent,
    stop,
    text,
    thinking,
)
from tests.model.support import Replay, outcome, replay, request, sse, user, wire_model


async def test_an_answer_goes_back_block_for_block() -> None:
    server_call = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found_page = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "x", "n": 1}]}
    cited = {"type": "web_search_result_location", "url": "https://a", "title": "A", "cited_text": "t"}
    found = await heard(
        *thinking(0, "Look.", "c2ln"),
        *block(1, {"type": "redacted_thinking", "data": "c2VjcmV0"}),
        *text(2, "Let me ", "look."),
        *block(3, server_call, {"type": "input_json_delta", "partial_json": '{"query": "x"}'}),
        *block(4, found_page),
        *block(5, {"type": "text", "text": ""}, {"type": "citations_delta", "citation": cited}, SAID),
        *text(6, " So be it."),
        *thinking(7, "", "b25seQ=="),
        *call(8, '{"cmd":', ' "ls"}', caller={"type": "direct"}),
        *call(9),
        stop("tool_use"),
        END,
    )  # fmt: skip
    assert found.error is None
    kinds = [type(view) for view in found.views]
    assert kinds == [Reasoning, Reasoning, Message, MessageBlock, MessageBlock, Message, Reasoning, *[FunctionCall] * 2]
    said = found.views[5]
    assert isinstance(said, Message) and text_of(said.content) == "It is. So be it."
    note: Any = json.loads(found.items[5].raw)["content"][0]["annotations"][0]
    assert (note["type"], note["url"], note["end_index"]) == ("url_citation", "https://a", 6)
    assert [event.part for event in found.of(TextDelta)] == [0, 0, 0, 1]
    body = sent(ask(user("go"), *found.items, result("toolu_8"), result("toolu_9")))
    assert contents(body)[1] == [
        {"type": "thinking", "thinking": "Look.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "text", "text": "Let me look."},
        server_call | {"input": {"query": "x"}},
        found_page,
        {"type": "text", "text": "It is.", "citations": [cited]},
        {"type": "text", "text": " So be it."},
        {"type": "thinking", "thinking": "", "signature": "b25seQ=="},
        {"type": "tool_use", "id": "toolu_8", "name": "shell", "input": {"cmd": "ls"}, "caller": {"type": "direct"}},
        {"type": "tool_use", "id": "toolu_9", "name": "shell", "input": {}},
    ]
    assert b'"input":{}' in wire_model("messages", Replay([])).body(ask(user("go"), *found.items))


async def test_tokens_are_counted_with_the_cache() -> None:
    start = {"id": "m", "usage": {"input_tokens": 5, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 31}}
    ended: Json = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    ended["usage"] = {"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 9}}
    found = await replay("messages", sse({"type": "message_start", "message": start}, *text(0, "Hi"), ended, END))
    assert found.of(Completed)[0].usage == TokenUsage(100, 64, 20, 9, 31)


async def test_a_call_starts_before_the_answer_has_ended() -> None:
    payloads = [START, *call(0, '{"cmd":"ls"}'), *text(1, "And")]
    model = wire_model("messages", Replay([sse(*payloads)]))
    found = await outcome(model, request())
    assert [type(view) for view in found.views] == [FunctionCall]
    assert found.error is not None and found.error.retryable and "before message_stop" in str(found.error)
    assert isinstance(found.error.partial, ResponseItem)


async def test_a_freeform_call_comes_as_its_text() -> None:
    found = await heard(*call(0, '{"inp', 'ut": "a\\nb"}', name="apply_patch"), stop("tool_use"), END)
    assert isinstance(view := found.views[0], CustomToolCall) and view.input == "a\nb"


@pytest.mark.parametrize("pieces", [(), ('{"cmd": "rm -r',), ("",)])
async def test_a_call_that_the_limit_cut_off_is_not_given_out(pieces: Sequence[str]) -> None:
    found = await heard(*text(0, "So:"), *call(1, *pieces), stop("max_tokens"), END)
    ended = found.of(Completed)[0]
    assert [type(view) for view in found.views] == [Message]
    assert (ended.incomplete, ended.cut_call) == ("max_output_tokens", "shell")


async def test_a_call_of_no_arguments_that_is_whole_is_given_out() -> None:
    found = await heard(*call(0), *call(1, "{}"), *call(2, '{"a": '), stop("tool_use"), END)
    assert [view.arguments for view in found.views if isinstance(view, FunctionCall)] == ["{}", "{}", '{"a": ']


async def test_words_that_were_cut_off_say_so() -> None:
    found = await heard(*text(0, "Half a"), stop("max_tokens"), END)
    assert isinstance(said := found.views[0], Message) and said.status == "incomplete"
    assert found.of(Completed)[0].incomplete == "max_output_tokens" and not found.of(Completed)[0].cut_call


async def test_a_full_window_is_a_context_error() -> None:
    found = await heard(*text(0, "Half a"), stop("model_context_window_exceeded"), END)
    assert isinstance(found.error, ContextOverflow) and not found.items


async def test_a_refusal_shows_its_explanation() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "It may do harm."}
    found = await heard(*text(0, "I"), stop("refusal", stop_details=details), END)
    assert isinstance(found.error, ContentFiltered) and not found.error.retryable
    assert "refuses to answer (bio): It may do harm." in str(found.error)
    assert found.error.partial is None and not found.items and found.error.usage is not None


async def test_a_paused_answer_is_sent_back_as_it_is_and_gone_on_with() -> None:
    found = await heard(*text(0, "Searching"), *thinking(1, "Hm", "s"), stop("pause_turn"), END)
    assert found.of(Completed)[0].end_turn is False
    body = sent(ask(user("go"), *found.items))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]
    assert [one["type"] for one in body["messages"][1]["content"]] == ["text", "thinking"]
    further = (await heard(*text(0, "Found."), stop("end_turn"), END, asked=ask(user("go"), *found.items))).items
    both = contents(sent(ask(user("go"), *found.items, *further, user("thanks"))))
    assert [one["type"] for one in both[1]] == ["text", "thinking", "text"]


async def test_a_paused_answer_ends_without_blanks_behind_what_the_cache_holds() -> None:
    found = await heard(*text(0, "Searching. "), stop("pause_turn"), END)
    asked = [user("go"), *found.items]
    before, paused = sent(ask(user("go"))), sent(ask(*asked))
    assert paused["messages"] == [*before["messages"], {"role": "assistant", "content": [said_text("Searching.")]}]
    assert contents(sent(ask(*asked, user("thanks"))))[1] == [said_text("Searching. ")]


@pytest.mark.parametrize(
    "events",
    [
        [*text(0, "a"), END],
        [*text(1, "a"), stop("end_turn"), END],
        [*text(0, "a"), *text(0, "b"), stop("end_turn"), END],
        [*text(0, "a"), {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}}],
        [*text(0, "a"), stop("end_turn")],
        [*text(0, "a"), stop("tool_use"), END],
        [*call(0, "{}", name=""), stop("tool_use"), END],
        block(0, {"type": "server_tool_use", "id": "s", "input": {}}, {"type": "x", "partial_json": "{"}),
        [*text(0, "a"), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
    ],
)
async def test_a_stream_that_lost_something_is_asked_again(events: list[Json]) -> None:
    found = await heard(*events)
    assert found.error is not None and found.error.retryable
    assert found.error.usage is not None and found.error.usage.input_tokens == 3


async def test_a_message_in_one_piece_is_read_like_a_stream() -> None:
    blocks = [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "shell", "input": {"cmd": "ls"}}]
    whole = {"type": "message", "id": "m", "content": blocks, "stop_reason": "end_turn"}
    found = await replay("messages", json.dumps(whole).encode())
    assert [type(view) for view in found.views] == [Message, FunctionCall] and found.error is None
