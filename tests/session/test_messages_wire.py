"""Sessions over the Messages wire: what an answer's end means to a turn, and what the next request then says."""

import asyncio
import json
from itertools import accumulate, pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, tool
from ferrule.model.stream import MAX_PAUSES, ContentFiltered, ModelError
from ferrule.protocol.events import WarningEvent
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import Wire
from ferrule.testing import (
    Request,
    ScriptedModel,
    Stall,
    StreamError,
    Usage,
    defects,
    function_call,
    reasoning,
    refusal,
    step,
)
from tests.session.conversations import Place

ran: list[int] = []


@tool(read_only=True)
async def look(n: int = 0) -> str:
    ran.append(n)
    return f"seen {n}"


PAUSED = defects.stop_reason("pause_turn")
CUT = defects.stop_reason("max_tokens")
SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}


class Told:
    """An agent whose warnings are kept."""

    def __init__(self, folder: Path, server: ScriptedModel) -> None:
        ran.clear()
        self.warnings: list[str] = []
        provider = ProviderSettings(name="server", base_url=server.base_url, wire_api="messages", stream_max_retries=1)
        self.agent = Agent("claude-opus-4-6", tools=[look], cwd=folder, provider=provider, on_event=self._hear)

    def _hear(self, event: object) -> None:
        if isinstance(event, WarningEvent):
            self.warnings.append(event.message)


def said(request: Request, number: int = -1) -> list[dict[str, Any]]:
    """The blocks of one message, without marks for the cache."""
    blocks: Any = request.items[number]["content"]
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


async def test_a_paused_answer_is_gone_on_with(tmp_path: Path) -> None:
    result_block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    script = [step("Searching.", SEARCH, edits=PAUSED), step(result_block, "Found it.")]
    with ScriptedModel(script) as server:
        result = await Told(tmp_path, server).agent.run("go")
        server.check()
    again = server.requests[1]
    assert result.text == "Found it."
    assert again.items[-1]["role"] == "assistant" and said(again) == [{"type": "text", "text": "Searching."}, SEARCH]


async def test_what_the_server_runs_itself_is_not_the_call_that_was_to_be_made(tmp_path: Path) -> None:
    script = [step("Searching.", SEARCH, edits=PAUSED), step(function_call("look")), step("Done.")]
    with ScriptedModel(script) as server:
        assert (await Told(tmp_path, server).agent.run("go", tool_choice="required")).text == "Done."
        server.check()
    assert [request.body["tool_choice"] for request in server.requests] == [{"type": "any"}] * 2 + [{"type": "auto"}]


async def test_a_server_that_pauses_without_end_is_told_of(tmp_path: Path) -> None:
    with (
        ScriptedModel(lambda request: step("On and on.", edits=PAUSED)) as server,
        pytest.raises(ModelError, match=f"paused its answer {MAX_PAUSES + 1} times"),
    ):
        await Told(tmp_path, server).agent.run("go")
    assert len(server.requests) == MAX_PAUSES + 1


async def test_a_call_that_was_cut_off_is_not_run_and_asked_for_again(tmp_path: Path) -> None:
    half = function_call("look", '{"n": 1')
    with ScriptedModel([step("So.", half, edits=CUT), [function_call("look", {"n": 2})], "Done."]) as server:
        told = Told(tmp_path, server)
        assert (await told.agent.run("go")).text == "Done."
        server.check()
    assert ran == [2] and any("cut short: max_output_tokens" in text for text in told.warnings)
    assert "Your call of look was cut off" in said(server.requests[1])[0]["text"]


async def test_a_call_that_is_always_cut_off_ends_the_turn(tmp_path: Path) -> None:
    with (
        ScriptedModel(lambda request: step("So.", function_call("look", '{"n": 1'), edits=CUT)) as server,
        pytest.raises(ModelError, match="limit of output tokens within a call of look"),
    ):
        await Told(tmp_path, server).agent.run("go")
    assert not ran and len(server.requests) == 3


async def test_words_that_were_cut_off_are_no_silent_success(tmp_path: Path) -> None:
    with ScriptedModel([step("Half a", edits=CUT), "Whole."]) as server:
        told = Told(tmp_path, server)
        result = await told.agent.run("go")
        whole = await told.agent.run("go")
    assert (result.text, result.incomplete) == ("Half a", "max_output_tokens")
    assert told.warnings == ["the answer was cut short: max_output_tokens"]
    assert whole.incomplete is None


async def test_a_refusal_is_asked_once_and_the_session_goes_on(tmp_path: Path) -> None:
    with ScriptedModel([step(refusal("It may do harm.")), "Gladly."]) as server:
        told = Told(tmp_path, server)
        async with await told.agent.open() as session:
            with pytest.raises(ContentFiltered, match="It may do harm"):
                await session.run("something bad")
            assert len(server.requests) == 1
            assert (await session.run("something good")).text == "Gladly."
        server.check()


async def test_a_whole_call_before_an_error_runs_once_and_half_an_answer_does_not_go_back(tmp_path: Path) -> None:
    broken = step(
        reasoning(text="Hm", encrypted_content="c2ln"), "First.", function_call("look", {"n": 1}, call_id="toolu_1"),
        "Half of", end=StreamError("Overloaded", type="overloaded_error"),
    )  # fmt: skip
    lost = step(reasoning(text="Hm", encrypted_content="bG9zdA=="), "Lost.", end=StreamError("x", type="api_error"))
    with ScriptedModel([broken, "Done."]) as server:
        assert (await Told(tmp_path, server).agent.run("go")).text == "Done."
        server.check()
    kinds = [[block["type"] for block in said(server.requests[1], number)] for number in (-2, -1)]
    assert ran == [1] and kinds == [["thinking", "text", "tool_use"], ["tool_result"]]
    with ScriptedModel([lost, "Done."]) as server:
        told = Told(tmp_path, server)
        async with await told.agent.open() as session:
            assert (await session.run("go")).text == "Done."
            server.add("More.")
            await session.run("on")
        server.check()
    assert server.requests[1].items == server.requests[0].items
    assert b"bG9zdA" not in server.requests[2].raw and b"Lost." not in server.requests[2].raw


async def test_a_window_that_is_full_is_answered_with_a_compaction(tmp_path: Path) -> None:
    full = step("Half of", edits=defects.stop_reason("model_context_window_exceeded"))
    calls = [step(function_call("look", {"n": number})) for number in range(2)]
    with ScriptedModel([*calls, full, "SUMMED UP", "Done."]) as server:
        told = Told(tmp_path, server)
        assert (await told.agent.run("go " * 3_000)).text == "Done."
        server.check()
    assert b"SUMMED UP" in server.requests[4].raw and b"Half of" not in server.requests[4].raw


async def test_an_interrupt_leaves_a_conversation_that_can_be_sent(tmp_path: Path) -> None:
    stall = Stall(at="thinking_delta")
    with ScriptedModel([step(reasoning(text="A long thought."), "x", stall=stall), "Here I am."]) as server:
        told = Told(tmp_path, server)
        async with await told.agent.open() as session:
            running = asyncio.create_task(session.run("go"))
            await asyncio.to_thread(server.wait_for_requests, 1)
            session.interrupt()
            await running
            assert (await session.run("are you there?")).text == "Here I am."
        server.check()


WIRES: tuple[Wire, ...] = ("messages", "responses", "chat", "messages")


async def test_a_conversation_goes_on_over_each_wire(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for number, wire in enumerate(WIRES):
        call = function_call("look", {"n": number})
        thought = reasoning(text="Hm", encrypted_content=f"c2ln{number}")
        with ScriptedModel([step(thought, "I look.", call), f"Done {number}."]) as server:
            result = await place.talk(server, wire, f"round {number}", resume=bool(number))
            server.check()
        assert result.text == f"Done {number}."
        sent = server.requests[0].raw.decode()
        assert all(sent.count(f"Done {before}.") == 1 and f"seen {before}" in sent for before in range(number))
    left_out = [text for text in place.warnings if "began with another model or wire" in text]
    assert len(left_out) == 3 and all("the reasoning of earlier answers" in text for text in left_out)


async def test_a_long_conversation_is_read_from_the_cache(tmp_path: Path) -> None:
    """40 requests, of which at least 95 % of what can be read is marked to be, and is the same byte for byte."""
    calls = [[reasoning(text="Hm", encrypted_content=f"c2ln{n}"), function_call("look", {"n": n})] for n in range(39)]
    with ScriptedModel([*calls, "Done."]) as server:
        await Told(tmp_path, server).agent.run("go " * 500)
        server.check()
    pairs = list(pairwise(server.requests))
    shares = [(read_from_cache(*pair), len(prefixes(pair[1])[0][-1])) for pair in pairs]
    assert len(pairs) == 39 and sum(read for read, _ in shares) / sum(whole for _, whole in shares) > 0.95
    same = sum(len(commonprefix([before.raw, now.raw])) for before, now in pairs)  # noqa: RUF071 - no paths
    assert same / sum(len(now.raw) for _, now in pairs) > 0.95


async def test_a_turn_of_many_blocks_is_read_from_the_cache(tmp_path: Path) -> None:
    many = [function_call("look", {"n": number}) for number in range(25)]
    with ScriptedModel([step(*many), step(*many[:2]), "Done."]) as server:
        await Told(tmp_path, server).agent.run("go")
        server.check()
    for before, now in pairwise(server.requests):
        whole, marks = prefixes(before)
        assert read_from_cache(before, now) == len(whole[marks[-1]])


LOOKS_BACK = 20
"""Blocks before a mark in which the server looks for what it has."""


def read_from_cache(before: Request, now: Request) -> int:
    """How much of a request its marks find of what the one before has written."""
    written, marks = prefixes(before)
    whole, reading = prefixes(now)
    found = {whole[at] for mark in reading for at in range(max(0, mark - LOOKS_BACK), mark + 1)}
    return max((len(written[mark]) for mark in marks if written[mark] in found), default=0)


def prefixes(request: Request) -> tuple[list[str], list[int]]:
    """What stands up to the end of each block, in the order in which the server reads: tools, system text, messages;
    and the blocks that are marked."""
    body: Any = request.body
    blocks = [*body["tools"], *body["system"]]
    blocks += [{"role": said["role"], **block} for said in body["messages"] for block in said["content"]]
    texts = [json.dumps({name: value for name, value in block.items() if name != "cache_control"}) for block in blocks]
    return list(accumulate(texts)), [at for at, block in enumerate(blocks) if "cache_control" in block]


def test_tokens_of_the_cache_reach_the_result(tmp_path: Path) -> None:
    with ScriptedModel(step("Hi", usage=Usage(100, 20, 64, 7, 30))) as server:
        usage = Told(tmp_path, server).agent.run_sync("go").usage
    assert (usage.input_tokens, usage.cached_input_tokens, usage.cache_write_input_tokens) == (100, 64, 30)
    assert (usage.output_tokens, usage.reasoning_output_tokens) == (20, 7)
