"""Approvals through the Python API: a callback, and deciding by hand."""

import asyncio
import gc
from pathlib import Path

import pytest

from ferrule import Agent, Toolset
from ferrule.model.stream import Model
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.items import FunctionCall, ItemView
from ferrule.protocol.permissions import ReviewDecision
from ferrule.tools.answering import Approver
from ferrule.tools.questions import Decision
from tests.session.models import InProcessModel, says

CALL = FunctionCall(call_id="c", name="shell_command", arguments='{"command":"touch made"}')


def agent(model: Model | str, tmp_path: Path, on_approval: Approver | None = None, **more: object) -> Agent:
    return Agent(
        model,
        tools=["shell_command"],
        cwd=tmp_path,
        sandbox="danger-full-access",
        approval_policy="untrusted",
        on_approval=on_approval,
        **more,  # type: ignore[arg-type]
    )


def steps() -> list[list[ItemView]]:
    return [[CALL], [says("done")]]


async def test_a_callback_decides(tmp_path: Path) -> None:
    asked: list[ExecApproval] = []

    async def decide(question: ExecApproval) -> ReviewDecision:
        asked.append(question)
        return ReviewDecision.APPROVED

    await agent(InProcessModel(*steps()), tmp_path, decide).run("go")
    assert (tmp_path / "made").exists()
    [question] = asked
    assert (question.kind, question.text, question.cwd) == ("command", "touch made", str(tmp_path))
    assert question.call_id == "c"
    assert len(question.fingerprint) == 64


async def test_a_plain_callback_denies_and_the_model_reads_why(tmp_path: Path) -> None:
    model = InProcessModel(*steps())
    await agent(model, tmp_path, lambda question: Decision(ReviewDecision.DENIED, "not now")).run("go")
    assert not (tmp_path / "made").exists()
    assert b"exec command rejected by user: not now" in model.requests[1].items[-1].raw


@pytest.mark.parametrize("allows", [True, False])
async def test_a_callback_may_return_a_bool(tmp_path: Path, allows: bool) -> None:
    await agent(InProcessModel(*steps()), tmp_path, lambda question: allows).run("go")
    assert (tmp_path / "made").exists() is allows


@pytest.mark.parametrize("given", [None, "approved", 1, ReviewDecision])
async def test_a_callback_that_returns_no_decision_ends_the_turn(tmp_path: Path, given: object) -> None:
    model = InProcessModel(*steps())
    with pytest.raises(FerruleError, match=r"on_approval returned .*: return True, False, a ReviewDecision"):
        await agent(model, tmp_path, lambda question: given).run("go")  # type: ignore[arg-type,return-value]
    assert not (tmp_path / "made").exists()
    assert len(model.requests) == 1


async def test_a_callback_that_fails_is_a_refusal(tmp_path: Path) -> None:
    def broken(question: ExecApproval) -> ReviewDecision:
        raise ValueError("oops")

    model = InProcessModel(*steps())
    await agent(model, tmp_path, broken).run("go")
    assert b"the callback that answers raised ValueError: oops" in model.requests[1].items[-1].raw
    assert not (tmp_path / "made").exists()


async def test_without_a_callback_it_is_refused(tmp_path: Path) -> None:
    model = InProcessModel(*steps())
    await agent(model, tmp_path).run("go")
    assert b"rejected by user: nobody can answer questions here" in model.requests[1].items[-1].raw


async def test_a_pending_approval_is_decided_by_hand(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    class Door:
        can_answer = True

        def on_event(self, event: object) -> None:
            if isinstance(event, ExecApproval):
                waiting.set()

    made = agent("m", tmp_path)
    from ferrule.session.opening import open_session

    async with await open_session(
        made.settings, Door(), tools=["shell_command"], model=InProcessModel(*steps())
    ) as session:
        running = asyncio.create_task(session.run("go"))
        await waiting.wait()
        [question] = session.pending_approvals()
        assert not (tmp_path / "made").exists()
        session.decide(question.request_id, Decision(ReviewDecision.APPROVED))
        await running
        assert session.pending_approvals() == []
    assert (tmp_path / "made").exists()


async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def never(question: ExecApproval) -> ReviewDecision:
        waiting.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async with await agent(InProcessModel(*steps()), tmp_path, never).open() as session:
        running = asyncio.create_task(session.run("go"))
        await waiting.wait()
        session.interrupt()
        assert (await running).aborted
        assert session.pending_approvals() == []
    assert not (tmp_path / "made").exists()


async def test_an_interrupt_ends_the_function_that_answers(tmp_path: Path) -> None:
    waiting, ended, said = asyncio.Event(), asyncio.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))

    async def late(question: ExecApproval) -> ReviewDecision:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with await agent(InProcessModel(*steps()), tmp_path, late).open() as session:
        running = asyncio.create_task(session.run("go"))
        await waiting.wait()
        session.interrupt()
        await running
        await ended.wait()
    gc.collect()
    assert said == []


async def test_aborting_ends_the_turn(tmp_path: Path) -> None:
    model = InProcessModel(*steps())
    result = await agent(model, tmp_path, lambda question: ReviewDecision.ABORT).run("go")
    assert result.aborted
    assert len(model.requests) == 1


@pytest.mark.parametrize("decision", [ReviewDecision.APPROVED, ReviewDecision.DENIED])
def test_a_toolset_asks_too(decision: ReviewDecision, tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "shell_command", "arguments": CALL.arguments}
    with Toolset.for_model(
        "m",
        cwd=tmp_path,
        sandbox="danger-full-access",
        approval_policy="untrusted",
        tools=["shell_command"],
        on_approval=lambda question: decision,
    ) as tools:
        [answer] = tools.run_sync([call])
    assert (tmp_path / "made").exists() is (decision is ReviewDecision.APPROVED)
    assert ("rejected by user" in answer["output"]) is (decision is ReviewDecision.DENIED)
