"""Approvals of hosts by themselves, without commands."""

import asyncio
from collections.abc import Iterable
from typing import cast

from ferrule.dispatch.network import NOT_YET, NetworkApprovals, Rejected
from ferrule.protocol.approvals import ExecApprovalRequirement, NeedsApproval
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.context import ToolContext
from ferrule.tools.effects import NetworkEffect

CTX = cast("ToolContext", object())


class Judge:
    """Asks about every host, and answers when it is told to."""

    allowed_hosts: Iterable[str] = ()

    def __init__(self, error: RespondToModel | None = None) -> None:
        self.asked: list[str] = []
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.answered = asyncio.Event()
        self._error = error

    def network_requirement(self, ctx: ToolContext, effect: NetworkEffect) -> ExecApprovalRequirement:
        return NeedsApproval("a test")

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
        assert answers == [str(error)]
        with network.attempting(CTX):
            assert await network.decide("a.example", 443, False) == str(error)
        assert len(judge.asked) == again


async def test_the_end_withdraws_the_questions() -> None:
    judge, network = Judge(), NetworkApprovals()
    network.judge = judge
    with network.attempting(CTX):
        asked = asyncio.create_task(network.decide("a.example", 443, False))
        await judge.heard.get()
        await network.aclose()
        assert network.questions() == []
    await asyncio.wait([asked])
    assert asked.cancelled()
