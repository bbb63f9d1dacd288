"""Approvals of hosts by themselves, without commands."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from ferrule.dispatch import network
from ferrule.dispatch.network import NO_COMMAND, NOT_YET, TOO_MANY, WITHDRAWN, NetworkApprovals, Rejected
from ferrule.egress.guard import Refusal
from ferrule.protocol.approvals import ExecApprovalRequirement, NeedsApproval
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.context import ToolContext
from ferrule.tools.effects import NetworkEffect

CTX = cast("ToolContext", object())


class Judge:
    """Asks about every host, and answers when it is told to."""

    allowed_hosts: Iterable[str] = ()

    def __init__(self, error: RespondToModel | None = None) -> None:
        self.approved: set[str] = set()
        self.asked: list[str] = []
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.answered = asyncio.Event()
        self._error = error

    def network_requirement(self, ctx: ToolContext, effect: NetworkEffect) -> ExecApprovalRequirement:
        return NeedsApproval("a test")

    def is_approved(self, ctx: ToolContext, effect: NetworkEffect) -> bool:
        return effect.host in self.approved

    async def approve(self, ctx: ToolContext, effect: NetworkEffect, needs: NeedsApproval) -> None:
        self.asked.append(effect.host)
        self.heard.put_nowait(effect.host)
        await self.answered.wait()
        if self._error is not None:
            raise self._error


async def decided(judge: Judge, *hosts: str) -> tuple[list[str | None], NetworkApprovals]:
    """Connect to all hosts at once, and answer when all of them wait."""
    network = NetworkApprovals()
    network.judge = judge
    with network.attempting(CTX):
        waiting = [asyncio.create_task(network.decide(host, 443, False)) for host in hosts]
        for _ in set(hosts):
            await judge.heard.get()
        for _ in hosts:  # every task has had its turn
            await asyncio.sleep(0)
        judge.answered.set()
        return await asyncio.gather(*waiting), network


async def test_however_many_connections_wait_a_host_is_asked_for_once() -> None:
    judge = Judge()
    answers, _ = await decided(judge, "a.example", "a.example", "b.example", "a.example")
    assert answers == [None] * 4
    assert sorted(judge.asked) == ["a.example", "b.example"]


async def test_a_client_that_goes_away_takes_nobody_elses_question_along() -> None:
    judge, network = Judge(), NetworkApprovals()
    network.judge = judge
    with network.attempting(CTX):
        gone, stays = (asyncio.create_task(network.decide("a.example", 443, False)) for _ in range(2))
        await judge.heard.get()
        gone.cancel()
        assert network.questions() == [NOT_YET.format("a.example")]
        judge.answered.set()
        assert await stays is None
    assert network.questions() == []


async def test_an_answer_after_the_command_holds_for_the_next() -> None:
    judge, network = Judge(), NetworkApprovals()
    network.judge = judge
    with network.attempting(CTX):
        asked = asyncio.create_task(network.decide("a.example", 443, False))
        await judge.heard.get()
    judge.answered.set()
    await asked
    for expected in (1, 2):
        with network.attempting(CTX):
            assert await network.decide("a.example", 443, False) is None
        assert len(judge.asked) == expected


async def test_only_a_denial_lasts() -> None:
    for error, again in ((Rejected("no"), 1), (RespondToModel("nobody is there"), 2)):
        judge = Judge(error)
        answers, network = await decided(judge, "a.example")
        assert answers == [f"a.example: {error}"]
        with network.attempting(CTX):
            assert await network.decide("a.example", 443, False) == f"a.example: {error}"
        assert len(judge.asked) == again


async def test_the_end_withdraws_the_questions() -> None:
    judge, network = Judge(), NetworkApprovals()
    network.judge = judge
    with network.attempting(CTX):
        asked = asyncio.create_task(network.decide("a.example", 443, False))
        await judge.heard.get()
        await network.aclose()
        assert network.questions() == []
    assert await asked == WITHDRAWN.format("a.example")


async def test_one_call_asks_about_few_hosts_and_a_cancelled_one_about_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "MAX_QUESTIONS", 3)
    judge, approvals = Judge(), NetworkApprovals()
    assert await approvals.decide("a.example", 443, False) == NO_COMMAND.format("a.example"), "nothing ran yet"
    approvals.judge = judge
    judge.approved = {f"known{number}.example" for number in range(9)}
    call = cast("ToolContext", object())

    async def run() -> None:
        with approvals.attempting(call):
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await asyncio.sleep(0)
    for known in judge.approved:
        assert await approvals.decide(known, 443, False) is None, "no question"
    asked = [asyncio.create_task(approvals.decide(f"{number}.example", 443, False)) for number in range(9)]
    done, waiting = await asyncio.wait(asked, timeout=0.01)
    assert {await one for one in done} == {TOO_MANY.format(f"{number}.example", 3) for number in range(3, 9)}
    assert len(waiting) == len(judge.asked) == 3
    running.cancel()
    late = asyncio.create_task(approvals.decide("0.example", 443, False))  # while the question is withdrawn
    assert await late == WITHDRAWN.format("0.example")
    assert {await one for one in waiting} == {WITHDRAWN.format(f"{number}.example") for number in range(3)}
    assert approvals.questions() == []
    assert await approvals.decide("0.example", 443, False) == NO_COMMAND.format("0.example"), "what it left running"
    judge.answered.set()
    with approvals.attempting(CTX):
        assert await approvals.decide("0.example", 443, False) is None, "the next command may ask again"


async def test_a_question_that_ended_without_an_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ANSWER_SECONDS", 0.0)
    judge, approvals = Judge(), NetworkApprovals()
    approvals.judge = judge
    with approvals.attempting(CTX):
        asked = asyncio.create_task(approvals.decide("a.example", 443, False))
        await asyncio.sleep(0)
    assert "did not answer" in str(await asked)
    judge.answered.set()
    monkeypatch.setattr(network, "ANSWER_SECONDS", 60.0)
    with approvals.attempting(CTX):
        assert await approvals.decide("a.example", 443, False) is None


async def test_refusals_without_end_are_told_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "MAX_TOLD", 3)
    told: list[object] = []
    ctx = cast("ToolContext", SimpleNamespace(call_id="call_1", emit=told.append))
    approvals = NetworkApprovals()
    for _ in range(2):
        with approvals.attempting(ctx):
            for number in range(9):
                approvals.refused(Refusal(f"{number}.example", 443, "no"))
    assert len(told) == 6


async def test_a_question_that_is_withdrawn_before_it_is_asked_leaves_nothing() -> None:
    judge, approvals = Judge(), NetworkApprovals()
    approvals.judge = judge
    connection = approvals.decide("a.example", 443, False)

    async def cancelled() -> None:
        with approvals.attempting(CTX):
            connection.send(None)  # as far as it waits for the answer
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await cancelled()
    connection.close()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert (approvals.questions(), judge.asked) == ([], [])
