"""Compaction between its bounds: hooks, interrupts, budgets, and what its own requests use."""

import asyncio

import pytest

from ferrule.session.budget import BudgetSpent
from ferrule.session.compaction import CompactionFailed
from ferrule.session.hooks import HookInput, HookOutput, PythonHook
from ferrule.testing import ScriptedModel, Usage, step
from tests.session.windows import Boat, Dock, reads


async def test_a_hook_that_blocks_does_not_end_a_turn_that_still_fits(dock: Dock) -> None:
    hook = PythonHook("PreCompact", lambda told: HookOutput(decision="block", reason="not now"))
    boat = Boat(10_000, *reads(10_000, 10_000, 10_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=10_000, hooks=(hook,)) as session:
            await session.run("row the boat")
            boat.acts += reads(20_000)
            with pytest.raises(CompactionFailed, match="model_context_window"):
                await session.run("on and on")
    assert not boat.summaries


async def test_hooks_see_and_block_compactions(dock: Dock) -> None:
    seen: list[HookInput] = []
    answers: list[HookOutput | None] = [HookOutput(decision="block", reason="not now"), None]

    def before(told: HookInput) -> HookOutput | None:
        seen.append(told)
        return answers.pop(0)

    hooks = (
        PythonHook("PreCompact", before, matcher="manual"),
        PythonHook("PreCompact", before, matcher="auto"),
        PythonHook("PostCompact", seen.append),
    )
    with ScriptedModel(Boat(100_000, *reads(100))) as server:
        async with await dock.open(server.base_url, hooks=hooks) as session:
            await session.run("row the boat")
            with pytest.raises(CompactionFailed, match="PreCompact hook blocked it: not now"):
                await session.compact()
            await session.compact()
    assert [(told.hook_event_name, told.trigger, told.compact_summary) for told in seen] == [
        ("PreCompact", "manual", None), ("PreCompact", "manual", None), ("PostCompact", "manual", "SUMMED UP"),
    ]  # fmt: skip


async def test_an_interrupt_during_a_compaction_leaves_history_as_it_was(dock: Dock) -> None:
    boat = Boat(100_000, *reads(100), summary=lambda count: step("late", delay=60))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url) as session:
            await session.run("row the boat")
            before = session.history.items
            running = asyncio.ensure_future(session.compact())
            await asyncio.to_thread(server.wait_for_requests, 3)
            assert session.interrupt()
            assert await running is None
            assert session.history.items == before


async def test_an_interrupt_after_a_compaction_loses_none_of_its_account(dock: Dock) -> None:
    told = asyncio.Event()

    async def hang(seen: HookInput) -> None:
        told.set()
        await asyncio.Event().wait()

    boat = Boat(4_000, *reads(4_000, 4_000, 4_000))
    with ScriptedModel(boat) as server:
        hooks = (PythonHook("PostCompact", hang),)
        async with await dock.open(server.base_url, window=4_000, hooks=hooks) as session:
            running = asyncio.ensure_future(session.run("row the boat"))
            await told.wait()
            assert session.interrupt()
            result = await running
    assert result.aborted and len(result.items) == 6
    assert result.usage.input_tokens > sum(boat.sizes), "the summary's tokens count"


async def test_a_budget_that_the_summary_uses_up_ends_the_turn_before_the_next_request(dock: Dock) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000, budget=5_000) as session:
            with pytest.raises(BudgetSpent):
                await session.run("row the boat")
    assert len(boat.taken) == 3 and len(boat.summaries) == 1 and len(dock.watch.compactions) == 1


@pytest.mark.parametrize("limit", [1, 10**9])
async def test_the_users_limit_is_kept_within_reason(dock: Dock, limit: int) -> None:
    boat = Boat(10_000, *reads(*[2_000] * 25))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=10_000, limit=limit) as session:
            await session.run("row the boat")
    assert boat.refused == 0 and dock.watch.compactions
    assert all(event.tokens_before >= 6_000 for event in dock.watch.compactions)


async def test_the_tokens_of_summaries_that_came_to_nothing_count(dock: Dock) -> None:
    boat = Boat(100_000, *reads(4_000), summary=lambda count: step("", usage=Usage(70_000, 10)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, budget=1_000_000) as session:
            await session.run("row the boat")
            before = session.usage.input_tokens
            with pytest.raises(CompactionFailed):
                await session.compact()
            assert session.usage.input_tokens == before + 3 * 70_000
            assert session._dialogue.budget.usage.input_tokens == session.usage.input_tokens
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000), summary=lambda count: step("", usage=Usage(70_000, 10)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            with pytest.raises(CompactionFailed):
                await session.run("row the boat")
            assert session.usage.input_tokens == sum(boat.sizes) + 3 * 70_000


async def test_a_budget_ends_the_tries_for_a_summary(dock: Dock) -> None:
    boat = Boat(100_000, *reads(4_000), summary=lambda count: step("", usage=Usage(70_000, 10)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, budget=100_000) as session:
            await session.run("row the boat")
            before = session.history.items
            with pytest.raises(BudgetSpent):
                await session.compact()
            assert session.history.items == before
    assert len(boat.summaries) == 2


async def test_a_summary_whose_server_counts_nothing_is_estimated(dock: Dock) -> None:
    boat = Boat(100_000, *reads(4_000), summary=lambda count: step("short", usage=Usage(0, 0)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, budget=100_000) as session:
            await session.run("row the boat")
            before = session.usage.input_tokens
            await session.compact()
            assert session.usage.input_tokens > before + 1_000
