"""What a run may spend in tokens and in money, and what it is told of what it has spent."""

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, FerruleError, UsageError, tool
from ferrule.protocol.events import TokenCount, TokenUsage, TurnCompleted, WarningEvent
from ferrule.protocol.prices import Prices, prices_of
from ferrule.session.budget import BudgetSpent
from ferrule.testing import Raw, ScriptedModel, Usage, function_call, step

PRICES = {"input": 2.0, "cached_input": 0.5, "output": 10.0}
CALL = function_call("look")


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "nothing"


def agent(model: ScriptedModel, cwd: Path, **more: Any) -> Agent:
    return Agent("gpt-5.5", cwd=cwd, base_url=model.base_url, **{"wire": "responses", "tools": [look], **more})


def sse(*payloads: object) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(payload).encode() for payload in payloads)


REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}
BEGUN = {"type": "response.output_item.done", "output_index": 0, "item": REASONING}
BROKEN = {
    "type": "response.failed",
    "response": {
        "id": "r",
        "status": "failed",
        "error": {"code": "server_error", "message": "It broke."},
        "usage": {"input_tokens": 700, "output_tokens": 0},
    },
}
UNCOUNTED = Raw(
    sse(
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Done." * 40}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    )
)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"token_budget": 250}, r"300 of 250 tokens of this run \(run_token_budget\)"),
        ({"cost_budget": 0.0005, "prices": PRICES}, r"cost 0\.00069 of 0\.0005 of this run \(run_cost_budget\)"),
    ],
)
async def test_a_run_ends_where_its_budget_is_used_up(tmp_path: Path, budget: dict[str, Any], words: str) -> None:
    steps = [step(CALL, usage=Usage(110, 10, cached_tokens=50)) for _ in range(2)] + [step(CALL, usage=Usage(50, 10))]
    with ScriptedModel([*steps, "never"]) as model:
        with pytest.raises(BudgetSpent, match=f"^stopped: the budget is used up, {words}$"):
            await agent(model, tmp_path, **budget).run("go")
        assert len(model.requests) == 3
        assert isinstance(BudgetSpent(), FerruleError)


async def test_a_run_that_is_done_when_its_budget_is_gives_its_result(tmp_path: Path) -> None:
    with ScriptedModel([step("Done.", usage=Usage(500, 10))]) as model:
        result = await agent(model, tmp_path, token_budget=100).run("go")
    assert result.text == "Done."


async def test_the_next_turn_of_a_run_whose_budget_is_used_up_asks_nothing(tmp_path: Path) -> None:
    with ScriptedModel([step("Done.", usage=Usage(500, 10))]) as model:
        async with await agent(model, tmp_path, token_budget=100).open() as session:
            await session.run("one")
            with pytest.raises(BudgetSpent):
                await session.run("two")
        assert len(model.requests) == 1


async def test_a_compaction_counts(tmp_path: Path) -> None:
    usage = Usage(100, 10)
    with ScriptedModel(
        [step(" ".join(map(str, range(3000))), usage=usage), step("A summary.", usage=Usage(900, 100))]
    ) as model:
        async with await agent(model, tmp_path, token_budget=1110).open() as session:
            await session.run("one")
            await session.compact()
            with pytest.raises(BudgetSpent, match="1,110 of 1,110"):
                await session.run("two")


async def test_the_figure_runs_in_events_and_stands_in_the_result(tmp_path: Path) -> None:
    events: list[Any] = []
    steps = [step(CALL, usage=Usage(1000, 100, cached_tokens=400)), step("Done.", usage=Usage(2000, 50))]
    with ScriptedModel(steps) as model:
        made = agent(model, tmp_path, token_budget=10_000, prices=PRICES, on_event=events.append)
        async with await made.open() as session:
            result = await session.run("go")
            assert session.cost == result.cost
    first, second = [event for event in events if isinstance(event, TokenCount)]
    assert first.usage == TokenUsage(1000, 400, 100, 0)
    assert first.cost == pytest.approx((600 * 2 + 400 * 0.5 + 100 * 10) / 1e6)
    assert (first.budget, second.budget) == (
        "1,100 of 10,000 tokens of this run", "3,150 of 10,000 tokens of this run",
    )  # fmt: skip
    assert second.cost == result.cost == pytest.approx((2600 * 2 + 400 * 0.5 + 150 * 10) / 1e6)
    (done,) = [event for event in events if isinstance(event, TurnCompleted)]
    assert done.cost == result.cost


async def test_without_prices_there_is_no_cost(tmp_path: Path) -> None:
    with ScriptedModel(["Done."]) as model:
        assert (await agent(model, tmp_path).run("go")).cost is None


@pytest.mark.parametrize("before", [(), (BEGUN,)], ids=["at once", "after an item"])
async def test_a_failed_answer_that_tells_its_usage_counts(tmp_path: Path, before: tuple[object, ...]) -> None:
    with ScriptedModel([Raw(sse(*before, BROKEN)), step(CALL, usage=Usage(300, 0)), "never"]) as model:
        with pytest.raises(BudgetSpent, match="1,000 of 1,000 tokens"):
            await agent(model, tmp_path, token_budget=1000).run("go")
        assert len(model.requests) == 2


async def test_usage_that_a_server_does_not_report_is_estimated_and_told_once(tmp_path: Path) -> None:
    events: list[Any] = []
    with ScriptedModel([UNCOUNTED, UNCOUNTED]) as model:
        made = agent(model, tmp_path, wire="chat", token_budget=10**6, on_event=events.append)
        async with await made.open() as session:
            first, second = await session.run("go"), await session.run("on")
        body = len(model.requests[0].raw)
    assert 50 <= first.usage.output_tokens <= 100
    assert body / 8 < first.usage.input_tokens < body / 2
    assert second.usage.input_tokens > first.usage.input_tokens
    told = [event.message for event in events if isinstance(event, WarningEvent) and "estimated" in event.message]
    assert told == ["the server reports no token usage; it is estimated, at 4 bytes a token"]


async def test_without_a_budget_nothing_is_estimated(tmp_path: Path) -> None:
    events: list[Any] = []
    with ScriptedModel([UNCOUNTED]) as model:
        result = await agent(model, tmp_path, wire="chat", on_event=events.append).run("go")
    assert result.usage == TokenUsage()
    assert not [event for event in events if isinstance(event, WarningEvent) and "estimated" in event.message]


async def test_money_needs_prices_and_a_budget_is_above_zero(tmp_path: Path) -> None:
    with ScriptedModel([]) as model:
        with pytest.raises(UsageError, match=r'run_cost_budget needs the prices of the model: set \[prices."gpt-5'):
            await agent(model, tmp_path, cost_budget=1.0).run("go")
        for wrong in ({"token_budget": 0}, {"cost_budget": float("nan"), "prices": PRICES}):
            with pytest.raises(UsageError, match="must be above zero"):
                await agent(model, tmp_path, **wrong).run("go")
        with pytest.raises(UsageError, match="prices: "):
            agent(model, tmp_path, prices={"input": 1})
        assert not model.requests


def test_prices_are_those_of_the_name_else_of_the_longest_glob() -> None:
    table = {name: Prices(input=number, output=0) for number, name in enumerate(["*", "gpt-*", "gpt-5.5", "gpt-5*"])}
    found = {name: prices_of(name, table) for name in ("gpt-5.5", "gpt-5.5-mini", "gpt-4", "qwen")}
    assert {name: prices.input for name, prices in found.items() if prices} == {
        "gpt-5.5": 2, "gpt-5.5-mini": 3, "gpt-4": 1, "qwen": 0,
    }  # fmt: skip
    assert prices_of("gpt-5.5", {}) is None
    written = Prices(input=1, output=0, cache_write_input=3)
    assert written.cost(TokenUsage(1_000_000, 200_000, 0, 0, 100_000)) == pytest.approx(0.9 + 0.3)
