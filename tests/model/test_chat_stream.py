"""The Chat Completions stream: what comes out of each capture and of each defect."""

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
from ferrule.protocol.content import text_of
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning
from tests.model.streams import B061, CHAT
from tests.model.support import Outcome, capture, replay, sse, words


def calls(found: Outcome) -> list[tuple[str, str, str]]:
    return [(view.call_id, view.name, view.arguments) for view in found.views if isinstance(view, FunctionCall)]


async def test_a_turn_becomes_items() -> None:
    found = await replay("chat", capture("chat_turn"))
    reasoning, message, call, patch = found.views
    assert isinstance(reasoning, Reasoning)
    assert reasoning.content is not None
    assert text_of(reasoning.content) == "The user wants tests — run them."
    assert isinstance(message, Message)
    assert text_of(message.content) == "Läuft 🔧"
    assert isinstance(call, FunctionCall)
    assert (call.call_id, call.arguments) == ("call_A", '{"cmd": "pytest -q"}')
    assert isinstance(patch, CustomToolCall)
    assert patch.input == "*** Begin Patch\n*** Delete File: ä🔧\n*** End Patch"
    assert found.events[0] == Created("chatcmpl-01", "qwen3-coder")
    assert found.events[-1] == Completed("chatcmpl-01", TokenUsage(1200, 1024, 90, 64))


async def test_deltas_of_a_turn_name_the_item_that_they_belong_to() -> None:
    found = await replay("chat", capture("chat_turn"))
    ids = [event.item_id for event in found.of(ItemAdded)]
    assert ids == [view.id for view in found.views]  # type: ignore[union-attr]
    assert [event.item_id for event in found.of(ReasoningDelta)] == [ids[0]] * 2
    assert [event.item_id for event in found.of(TextDelta)] == [ids[1]] * 2
    patch = [event.delta for event in found.of(ToolInputDelta) if event.item_id == ids[3]]
    assert patch == ["*** Begin Patch\n", "*** Delete File: ä🔧\n*** End Patch"]


async def test_a_call_is_done_when_the_next_one_opens() -> None:
    stream = capture("chat_turn")
    second = stream.index(b"call_B")
    found = await replay("chat", stream[: stream.index(b"\n\n", second) + 2])
    assert calls(found) == [("call_A", "exec_command", '{"cmd": "pytest -q"}')]


@pytest.mark.parametrize("name", B061)
async def test_b061_two_calls_stay_two(name: str) -> None:
    found = await replay("chat", B061[name])
    assert found.error is None
    assert calls(found) == [("c1", "read_file", '{"p":"a"}'), ("c2", "read_file", '{"p":"b"}')]
    assert len(found.of(ItemAdded)) == 2


@pytest.mark.parametrize("name", ["b062 empty", "b062 null", "b062 blank"])
async def test_b062_no_arguments_are_kept_as_an_object(name: str) -> None:
    assert calls(await replay("chat", CHAT[name])) == [("c1", "exec_command", "{}")]


async def test_b064_glued_objects_reach_the_reader_whole() -> None:
    assert calls(await replay("chat", CHAT["b064"])) == [("c1", "exec_command", '{"cmd":"ls"}{"cmd":"pwd"}')]


async def test_b068_cut_arguments_reach_the_reader_as_they_are() -> None:
    assert calls(await replay("chat", CHAT["b068"])) == [("c1", "exec_command", '{"cmd":"echo')]


@pytest.mark.parametrize("name", ["b070 empty", "b070 absent", "b070 one message"])
async def test_b070_tool_calls_without_a_call_are_a_final_message(name: str) -> None:
    found = await replay("chat", CHAT[name])
    assert found.error is None
    assert words(found) == ["hi"]
    assert len(found.items) == 1
    assert isinstance(found.events[-1], Completed)


async def test_b071_a_second_finish_brings_usage_and_no_second_call() -> None:
    found = await replay("chat", CHAT["b071"])
    assert calls(found) == [("c1", "exec_command", '{"cmd":"ls"}')]
    assert found.events[-1] == Completed("chatcmpl-1", TokenUsage(4, 0, 1, 0))
    again = await replay("chat", CHAT["b071 text"])
    assert words(again) == ["hi"]
    assert len(again.of(ItemAdded)) == 1
    assert again.events[-1] == Completed("chatcmpl-1", TokenUsage(4, 0, 1, 0))


@pytest.mark.parametrize(
    ("name", "retryable", "said"),
    [
        ("b076 code", True, "queue full"),
        ("b076 text then error", True, "upstream died"),
        ("b076 error as text", True, "model crashed"),
        ("b088 filter", False, "content filter"),
        ("b085 aborted", True, "closed the stream"),
        ("closed early", True, "closed the stream"),
        ("nothing", True, "closed the stream"),
        ("cut in an event", True, "closed the stream"),
        ("not json", True, "<html>"),
    ],
)
async def test_b076_errors_are_raised_with_their_words_and_no_call_runs(name: str, retryable: bool, said: str) -> None:
    found = await replay("chat", CHAT[name])
    assert found.error is not None
    assert found.error.retryable is retryable
    assert said in str(found.error)
    assert calls(found) == []
    assert not found.of(Completed)


async def test_b076_partial_text_is_marked() -> None:
    for name in ("b076 error as text", "closed early", "cut in an event"):
        error = (await replay("chat", CHAT[name])).error
        assert error is not None
        assert error.partial is not None
        assert isinstance(error.partial.view, Message)
        assert (text_of(error.partial.view.content), error.partial.view.status) == ("Half", "incomplete")


async def test_b076_an_overflow_is_named() -> None:
    assert isinstance((await replay("chat", CHAT["b076 flat"])).error, ContextOverflow)


async def test_b082_the_same_id_twice_becomes_two_calls() -> None:
    found = await replay("chat", CHAT["b082 same id twice"])
    assert [(call_id, body) for call_id, _, body in calls(found)] == [
        ("call_x", '{"cmd":"a"}'),
        ("call_x_2", '{"cmd":"b"}'),
    ]


async def test_b085_name_and_id_are_taken_once_from_wherever_they_stand() -> None:
    assert calls(await replay("chat", CHAT["b085"])) == [("c1", "shell", '{"a":1}')]
    assert calls(await replay("chat", CHAT["b085 no id"])) == [("call_new1", "shell", '{"a":1}')]
    assert calls(await replay("chat", CHAT["legacy function_call"])) == [("call_new1", "shell", '{"a":1}')]


async def test_b088_chunks_without_choices_are_no_error() -> None:
    found = await replay("chat", capture("azure_chat"))
    assert found.error is None
    assert words(found) == ["Hello"]
    assert found.events[-1] == Completed("chatcmpl-az", TokenUsage(4, 0, 1, 0))


async def test_an_answer_that_was_cut_says_so() -> None:
    found = await replay("chat", CHAT["length"])
    assert found.events[-1] == Completed("chatcmpl-1", TokenUsage(4, 0, 1, 0), incomplete="max_output_tokens")
    assert [view.status for view in found.views] == ["incomplete"]  # type: ignore[union-attr]


async def test_a_native_custom_call_is_read_as_one() -> None:
    found = await replay("chat", CHAT["native custom"])
    assert [view.input for view in found.views if isinstance(view, CustomToolCall)] == ["*** Begin"]
    assert [event.delta for event in found.of(ToolInputDelta)] == ["*** ", "Begin"]


async def test_a_character_split_between_deltas_is_put_together() -> None:
    found = await replay("chat", CHAT["split surrogates"])
    assert words(found) == ["a 🔧"]
    for event in found.of(TextDelta):
        event.delta.encode()


async def test_content_parts_are_told_apart() -> None:
    found = await replay("chat", CHAT["parts"])
    assert [event.delta for event in found.of(ReasoningDelta)] == ["Hm."]
    assert words(found) == ["Yes."]


@pytest.mark.parametrize("name", ["no finish", "no done", "broken after the finish"])
async def test_a_stream_that_ends_oddly_after_all_is_said_is_whole(name: str) -> None:
    found = await replay("chat", CHAT[name])
    assert found.error is None
    assert isinstance(found.events[-1], Completed)
    assert words(found) == ["All said"]
    assert len(found.of(ItemDone)) == 1


async def test_a_refusal_is_streamed_as_one() -> None:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": {"refusal": "No."}, "finish_reason": "stop"}]}
    found = await replay("chat", sse(chunk, "[DONE]"))
    assert [(event.delta, event.refusal) for event in found.of(TextDelta)] == [("No.", True)]
