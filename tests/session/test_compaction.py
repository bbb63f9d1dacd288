"""Sessions that outgrow the window of a model, which counts what it is sent and refuses what is too long."""

import asyncio
import base64
import json
import re
from typing import Any

import pytest

from ferrule.history.compaction import SUMMARY_PREFIX, SUMMARY_PROMPT
from ferrule.model.stream import ContextOverflow
from ferrule.protocol.errors import UsageError
from ferrule.protocol.specs import Wire
from ferrule.session.compaction import CompactionFailed
from ferrule.session.opening import open_session
from ferrule.session.session import Session
from ferrule.testing import ScriptedModel, function_call, hang_up, http_error
from ferrule.testing.request import Request
from tests.session.windows import PLAN, TOO_LONG, WIRES, Boat, Dock, once, reads


def unmarked(request: Request) -> Any:
    """What a request holds, without its marks for the cache."""
    return json.loads(json.dumps(request.items).replace(', "cache_control": {"type": "ephemeral"}', ""))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_long_turn_stays_within_the_window(dock: Dock, wire: Wire) -> None:
    boat = Boat(8_000, [function_call("update_plan", PLAN)], *reads(*[6_000] * 20))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire, window=8_000) as session:
            result = await session.run("row the boat")
            assert result.text == "done" and len(result.tool_calls) == 21
            assert boat.refused == 0 and 2 <= len(dock.watch.compactions) <= 6
            assert all(event.tokens_before >= 0.6 * 8_000 > event.tokens_after for event in dock.watch.compactions)
            once(boat.taken[-1], "measure the boat", "Always speak of the harbour", "row the boat", "SUMMED UP")
            assert len(result.items) == 43, "the turn's items are all there, whatever the model still sees"
            assert result.usage.input_tokens > sum(boat.sizes)
            assert not server.failures
        compactions = len(dock.watch.compactions)
        async with await dock.open(server.base_url, wire, window=8_000, resume=True) as session:
            before = boat.taken[-1]
            await session.run("and back")
            assert unmarked(boat.taken[-1])[: len(before.items)] == unmarked(before)
            once(boat.taken[-1], "measure the boat", "Always speak of the harbour", "SUMMED UP")
            assert len(dock.watch.compactions) == compactions, "it goes on from the compacted state"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_as_too_long_is_answered_with_a_compaction(dock: Dock, wire: Wire) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000, 4_000, 4_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            result = await session.run("row the boat")
    assert result.text == "done" and boat.refused >= 1 and len(result.tool_calls) == 5
    once(boat.taken[-1], "row the boat", "SUMMED UP")


async def test_after_a_refusal_the_window_is_known(dock: Dock) -> None:
    boat = Boat(4_000, *reads(*[4_000] * 12))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url) as session:
            await session.run("row the boat")
    assert len(dock.watch.compactions) >= 3 and boat.refused == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_b145_a_request_for_a_summary_is_cut_until_it_fits(dock: Dock, wire: Wire) -> None:
    boat = Boat(4_000, *reads(2_000, 12_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire, window=4_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert boat.refused == 0 and len(boat.summaries) == 1
    assert "tokens truncated" in boat.summaries[0].raw.decode()
    once(boat.taken[-1], "row the boat", "Always speak of the harbour")


@pytest.mark.parametrize(
    ("summary", "words"),
    [
        (TOO_LONG, "maximum context length"),
        ("", "answered nothing"),
        (http_error(500, "broken"), "broken"),
        (hang_up(), "could not be compacted"),
    ],
)
async def test_b145_a_compaction_that_fails_leaves_history_as_it_was(dock: Dock, summary: Any, words: str) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000), summary=lambda count: summary)
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            with pytest.raises(CompactionFailed, match=words):
                await session.run("row the boat")
            assert 1 <= len(boat.summaries) <= 3
            assert not dock.watch.compactions
            assert sum(item.view.__class__.__name__ == "FunctionCallOutput" for item in session.history.items) == 3
            boat.summary = "BETTER"
            assert (await session.run("go on")).text == "done"
            once(boat.taken[-1], "BETTER", "row the boat", "go on")


async def test_a_summary_that_is_empty_once_is_asked_for_again(dock: Dock) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000), summary=lambda count: "" if count == 1 else "SUMMED UP")
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert len(boat.summaries) == 2


@pytest.mark.parametrize("window", [8_000, None])
async def test_a_session_goes_on_with_a_far_smaller_window(dock: Dock, window: int | None) -> None:
    boat = Boat(100_000, *reads(*[20_000] * 9))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url) as session:
            await session.run("row the boat")
        boat.window = 8_000
        async with await dock.open(server.base_url, window=window, resume=True) as session:
            assert (await session.run("and back")).text == "done"
    once(boat.taken[-1], "row the boat", "SUMMED UP", "and back")


async def test_a_refusal_below_the_window_is_believed(dock: Dock) -> None:
    boat = Boat(4_000, *reads(*[4_000] * 12))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=100_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert len(dock.watch.compactions) >= 3 and boat.refused == 1


def picture(size: int, shade: int = 0) -> str:
    """A picture of `size` bytes that no server reads."""
    return f"data:image/png;base64,{base64.b64encode(bytes([shade]) * size).decode()}"


@pytest.mark.parametrize("wire", WIRES)
async def test_b146_images_beyond_the_limit_are_not_in_the_request_for_a_summary(dock: Dock, wire: Wire) -> None:
    boat = Boat(10**9)
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            await session.run("look", images=[picture(5_000_000, shade) for shade in range(4)])
            await session.run("and on")
            assert await session.compact() is not None
    assert len(boat.summaries[0].raw) < 21 * 1024 * 1024


@pytest.mark.parametrize("wire", WIRES)
async def test_b146_a_refused_image_does_not_stand_in_a_summarys_way(dock: Dock, wire: Wire) -> None:
    refused = http_error(400, "Invalid image.", code="invalid_image")
    boat: Boat = Boat(10**6, summary=lambda count: refused if b"base64" in boat.summaries[-1].raw else "SUMMED UP")
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            await session.run("look", images=[picture(3_000)])
            assert await session.compact() is not None
    assert len(boat.summaries) == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_wants_tools_beside_calls_gets_them(dock: Dock, wire: Wire) -> None:
    refused = http_error(400, "The `tools` param must be passed, since the conversation has tool calls.")
    boat: Boat = Boat(
        10**6, *reads(10), summary=lambda count: "SUMMED UP" if boat.summaries[-1].body.get("tools") else refused
    )
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            await session.run("row the boat")
            assert await session.compact() is not None
    none = {"type": "none"} if wire == "messages" else "none"
    assert len(boat.summaries) == 2 and boat.summaries[1].body["tool_choice"] == none


async def test_what_cannot_be_made_smaller_is_refused_once(dock: Dock) -> None:
    with ScriptedModel(boat := Boat(2_000)) as server:
        async with await dock.open(server.base_url, window=2_000) as session:
            with pytest.raises(CompactionFailed, match="model_context_window"):
                await session.run("row " * 3_000)
    assert not boat.taken and not boat.summaries and not boat.refused


async def test_a_refusal_that_nothing_helps_ends_the_turn(dock: Dock) -> None:
    with ScriptedModel(boat := Boat(500)) as server:
        async with await dock.open(server.base_url) as session:
            with pytest.raises(ContextOverflow, match="send less at once"):
                await session.run("row " * 3_000)
    assert boat.refused == 1


async def test_a_server_that_never_takes_the_history_is_asked_three_times_more(dock: Dock) -> None:
    boat = Boat(100_000, *reads(8_000, 8_000), summary=lambda count: "shorter and shorter " * 10 * (5 - count))
    refusals = 0

    def server_of(request: Request) -> Any:
        nonlocal refusals
        if len(boat.taken) == 2 and not request.user_text.endswith(SUMMARY_PROMPT):
            refusals += 1
            return TOO_LONG
        return boat(request)

    with ScriptedModel(server_of) as server:
        async with await dock.open(server.base_url) as session:
            with pytest.raises(ContextOverflow):
                await session.run("row the boat")
    assert refusals == 4 and len(boat.summaries) <= 4


async def test_compaction_that_cannot_shrink_much_does_not_loop(dock: Dock) -> None:
    """The user's own words fill the window to nine tenths, and nothing else is there to leave out."""
    boat = Boat(4_000, "ok", "ok", *reads(10, 10, 10))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            await session.run("hello")
            left = 4_000 - boat.sizes[0]
            await session.run("x" * round(left * 4 * 0.85))
            assert (await session.run("now read")).text == "done"
    assert boat.refused == 0 and len(boat.summaries) <= 2 and len(boat.taken) == 6


@pytest.mark.parametrize("counts", [0.6, 1.6])
async def test_the_server_is_believed_about_its_tokens(dock: Dock, counts: float) -> None:
    boat = Boat(8_000, *reads(*[6_000] * 12), [function_call("read", {"size": 60_000})], counts=counts)
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=8_000) as session:
            await session.run("row the boat")
    assert boat.refused == 0 and dock.watch.compactions
    assert all(event.tokens_after > 300 for event in dock.watch.compactions)


@pytest.mark.parametrize("wire", WIRES)
async def test_compaction_on_demand(dock: Dock, wire: Wire) -> None:
    boat = Boat(100_000, [function_call("update_plan", PLAN)], *reads(100), "first", "second")
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            with pytest.raises(UsageError, match="nothing to compact"):
                await session.compact()
            await session.run("row the boat")
            done = await session.compact()
            assert done is not None and session.usage.input_tokens > 0
            with pytest.raises(UsageError, match="already"):
                await _both(session)
            assert (await session.run("go on")).text == "second"
            last = boat.taken[-1]
            once(last, "measure the boat", "Always speak of the harbour", "SUMMED UP", "row the boat", "go on")
            texts = [json.dumps(item) for item in last.items]
            order = [next(at for at, text in enumerate(texts) if word in text) for word in
                     ("harbour", "row the boat", "SUMMED UP", "measure the boat", "go on")]  # fmt: skip
            assert order == sorted(order)
            assert "0123456789" not in last.raw.decode()


async def _both(session: Session) -> None:
    first = asyncio.ensure_future(session.compact())
    await asyncio.sleep(0)
    try:
        await session.run("meanwhile")
    finally:
        await first


async def test_running_commands_and_their_numbers_are_told(dock: Dock) -> None:
    boat = Boat(100_000, [function_call("exec_command", {"cmd": "echo up; sleep 600", "yield_time_ms": 250})])
    with ScriptedModel(boat) as server:
        session = await dock.open(server.base_url)
        await session.aclose()
        settings = session.settings
        async with await open_session(settings, dock.watch, tools=["exec_command", "write_stdin"]) as session:
            await session.run("row the boat")
            await session.compact()
            await session.run("go on")
    [number] = re.findall(r"session ID (\d+)", boat.taken[1].raw.decode())
    assert f"session {number}: echo up; sleep 600" in boat.taken[-1].raw.decode()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_response_of_many_calls_is_summarised_in_part(dock: Dock, wire: Wire) -> None:
    boat = Boat(16_000, [call for [call] in reads(*[300] * 256)])
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire, window=16_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert boat.refused == 0 and len(boat.summaries[0].raw) > 16_000 and not server.failures


def test_what_the_summary_says_of_itself() -> None:
    assert "summary" in SUMMARY_PREFIX and "Do not call tools" in SUMMARY_PROMPT
