"""The Responses stream: what comes out of each capture and of each defect."""

import msgspec
import pytest

from ferrule.model.stream import (
    Completed,
    ContextOverflow,
    Created,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
)
from ferrule.protocol.content import Refusal
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import CustomToolCall, FunctionCall, FunctionCallOutput, Message, UnknownItem, make_item
from tests.model.streams import B089, CITY, RESPONSES, call, completed, created, done
from tests.model.support import capture, replay, request, sse, user


def raw_items(stream: bytes) -> list[bytes]:
    """The bytes of each `item` of the stream's `output_item.done` events."""
    lines = [line[6:] for line in stream.splitlines() if line.startswith(b'data: {"type":"response.output_item.done"')]
    return [line[line.index(b'"item":') + 7 : -1] for line in lines]


async def test_a_turn_keeps_every_item_byte_for_byte() -> None:
    stream = capture("responses_turn")
    found = await replay("responses", stream)
    assert found.error is None
    assert [item.raw for item in found.items] == raw_items(stream)
    assert isinstance(found.views[-1], UnknownItem)
    usage = TokenUsage(1200, 1024, 90, 64)
    assert found.events[0] == Created("resp_01", "gpt-5.5")
    assert found.events[-1] == Completed("resp_01", usage)
    assert [event.delta for event in found.of(TextDelta)] == ["Ich prüfe ", "das 🔧."]
    assert [event.delta for event in found.of(ReasoningDelta)] == ["**Looking at ", "the tests**"]
    assert found.of(ToolInputDelta) == [
        ToolInputDelta("fc_01", "call_A", '{"cmd":'),
        ToolInputDelta("fc_01", "call_A", '"pytest -q"}'),
        ToolInputDelta("ctc_01", "call_B", "*** Begin Patch\n"),
        ToolInputDelta("ctc_01", "call_B", "*** Delete File: a\n*** End Patch"),
    ]


async def test_a_call_is_done_before_the_response_is() -> None:
    stream = capture("responses_turn")
    until = stream.index(b'data: {"type":"response.output_item.added","sequence_number":21')
    found = await replay("responses", stream[:until])
    assert isinstance(found.views[-1], FunctionCall)


@pytest.mark.parametrize("name", B089)
async def test_b089_every_defect_gives_one_message_and_one_call(name: str) -> None:
    found = await replay("responses", B089[name])
    assert found.error is None
    message, call_item = found.views
    assert isinstance(message, Message)
    assert isinstance(call_item, FunctionCall)
    assert (call_item.name, call_item.call_id, call_item.arguments) == ("get_weather", "call_1", CITY)
    assert [part.text for part in message.content if hasattr(part, "text")] == ["Checking."]
    assert len(found.of(ItemAdded)) == 2
    assert isinstance(found.events[-1], Completed)


async def test_b089_item_done_is_surer_than_the_final_response() -> None:
    found = await replay("responses", sse(created(), done(0, **call()), completed(call('{"city":"LA"}'))))
    assert [view.arguments for view in found.views if isinstance(view, FunctionCall)] == [CITY]


async def test_b077_a_stream_without_its_end_is_an_error_that_names_the_event() -> None:
    found = await replay("responses", RESPONSES["b077"])
    assert len(found.items) == 1
    assert found.error is not None
    assert found.error.retryable
    assert "response.completed" in str(found.error)


async def test_b079_a_usage_limit_is_shown_with_its_reset_and_not_retried() -> None:
    found = await replay("responses", RESPONSES["b079"])
    assert found.error is not None
    assert not found.error.retryable
    assert "resets in 2 h 39 min" in str(found.error)


async def test_b082_the_same_id_twice_becomes_two_calls() -> None:
    for name in ("b082", "b082 without ids or places", "b082 in the final response"):
        found = await replay("responses", RESPONSES[name])
        calls = [(view.call_id, view.arguments) for view in found.views if isinstance(view, FunctionCall)]
        assert calls == [("call_x", CITY), ("call_x_2", '{"city":"LA"}')]


async def test_b082_an_id_of_the_history_is_not_used_again() -> None:
    history = (user("hi"), make_item(FunctionCall(call_id="call_1", name="shell", arguments="{}")),
               make_item(FunctionCallOutput(call_id="call_1", output="ok")))  # fmt: skip
    found = await replay("responses", B089["only the final response"], request(*history))
    again = await replay("responses", capture("responses_turn"), request(*history))
    assert [view.call_id for view in found.views if isinstance(view, FunctionCall)] == ["call_1_2"]
    assert [event.call_id for event in found.of(ItemAdded)] == [None, "call_1_2"]
    assert [view.call_id for view in again.views if isinstance(view, FunctionCall)] == ["call_A"]


async def test_b077_a_call_of_a_broken_response_keeps_its_id() -> None:
    history = (user("hi"), make_item(FunctionCall(call_id="call_1", name="get_weather", arguments=CITY)))
    asked = request(*history, interrupted_calls=frozenset({"call_1"}))
    found = await replay("responses", RESPONSES["b077"], asked)
    assert [view.call_id for view in found.views if isinstance(view, FunctionCall)] == ["call_1"]


async def test_b086_history_keeps_the_declared_name() -> None:
    found = await replay("responses", RESPONSES["names"])
    names = [msgspec.json.decode(item.raw)["name"] for item in found.items]
    assert names == ["shell", "exec_command"]
    assert [event.name for event in found.of(ItemAdded)] == names


async def test_b062_empty_arguments_are_kept_as_an_object() -> None:
    found = await replay("responses", RESPONSES["empty arguments"])
    assert [view.arguments for view in found.views if isinstance(view, FunctionCall)] == ["{}", "{}"]


async def test_a_freeform_tool_behind_a_function_is_mapped_back_while_it_streams() -> None:
    found = await replay("responses", RESPONSES["freeform as a function"])
    (item,) = found.views
    assert isinstance(item, CustomToolCall)
    assert item.input == 'a\n"b🔧'
    assert "".join(event.delta for event in found.of(ToolInputDelta)) == item.input
    assert len(found.of(ToolInputDelta)) == 3
    assert found.events[-1] == Completed("resp_1", end_turn=False)


@pytest.mark.parametrize(
    ("name", "retryable", "words"),
    [
        ("error flat", True, "try later"),
        ("error nested", True, "oops"),
        ("error untyped", False, "invalid_prompt"),
        ("failed after text", True, "try again in 1.5s"),
        ("closed early", True, "response.completed"),
        ("filtered", False, "content filter"),
    ],
)
async def test_b076_an_error_in_the_stream_is_raised_with_its_words(name: str, retryable: bool, words: str) -> None:
    found = await replay("responses", RESPONSES[name])
    assert found.error is not None
    assert found.error.retryable is retryable
    assert words in str(found.error)
    assert found.of(ItemDone) == []


async def test_partial_text_comes_with_the_error_and_is_marked() -> None:
    found = await replay("responses", RESPONSES["failed after text"])
    assert found.error is not None
    assert found.error.partial is not None
    view = found.error.partial.view
    assert isinstance(view, Message)
    assert view.status == "incomplete"
    assert b"Checking." in found.error.partial.raw
    assert found.error.retry_after_ms == 1500


async def test_an_overflow_is_named() -> None:
    assert isinstance((await replay("responses", RESPONSES["failed"])).error, ContextOverflow)


async def test_an_incomplete_response_says_why() -> None:
    found = await replay("responses", RESPONSES["incomplete"])
    assert found.events[-1] == Completed("resp_1", incomplete="max_output_tokens")
    assert [view.status for view in found.views] == ["incomplete"]  # type: ignore[union-attr]


async def test_half_a_patch_never_runs() -> None:
    found = await replay("responses", RESPONSES["incomplete in a patch"])
    assert found.items == []
    assert found.error is None


async def test_nothing_counts_after_the_end() -> None:
    found = await replay("responses", RESPONSES["ended twice"])
    assert found.error is None
    assert len(found.items) == len(found.of(Completed)) == 1


async def test_unknown_events_and_odd_endings_are_passed_over() -> None:
    for name in ("unknown events", "odd ending"):
        found = await replay("responses", RESPONSES[name])
        assert found.error is None
        assert len(found.items) == 1
        assert isinstance(found.events[-1], Completed)


async def test_text_at_the_place_of_a_call_is_a_message_of_its_own() -> None:
    found = await replay("responses", RESPONSES["text after a call at its place"])
    call_view, message = found.views
    assert isinstance(call_view, FunctionCall)
    assert call_view.arguments == CITY
    assert isinstance(message, Message)


async def test_deltas_name_the_part_that_they_belong_to() -> None:
    def delta(kind: str, text: str, **place: object) -> dict[str, object]:
        return {"type": f"response.{kind}.delta", "delta": text, "output_index": 0, **place}

    stream = sse(
        created(),
        delta("reasoning_summary_text", "a", item_id="rs_1", summary_index=0),
        delta("reasoning_summary_text", "b", item_id="rs_1", summary_index=1),
        delta("output_text", "c", item_id="msg_1", output_index=1, content_index=0),
        delta("refusal", "d", item_id="msg_1", output_index=1, content_index=1),
        delta("reasoning_text", "e", item_id="rs_2", output_index=2, content_index=1),
        completed(),
    )
    found = await replay("responses", stream)
    assert found.of(ReasoningDelta) == [
        ReasoningDelta("rs_1", "a", 0, summary=True), ReasoningDelta("rs_1", "b", 1, summary=True),
        ReasoningDelta("rs_2", "e", 1),
    ]  # fmt: skip
    assert found.of(TextDelta) == [TextDelta("msg_1", "c"), TextDelta("msg_1", "d", 1, refusal=True)]


async def test_a_refusal_without_its_whole_item_stays_one() -> None:
    piece = {"type": "response.refusal.delta", "item_id": "msg_1", "output_index": 0, "delta": "No."}
    (view,) = (await replay("responses", sse(created(), piece, completed()))).views
    assert isinstance(view, Message)
    assert view.content == (Refusal("No."),)
