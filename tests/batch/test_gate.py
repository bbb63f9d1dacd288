"""The way to the model's server: so many requests at a time, and none while it asks to wait."""

import asyncio
import time

import pytest

from ferrule.batch import gate as module
from ferrule.batch.gate import Gate
from ferrule.model.stream import ModelError


def refusal(status: int = 429, wait_ms: int | None = 50, *, retryable: bool = True) -> ModelError:
    return ModelError("later", retryable=retryable, status=status, retry_after_ms=wait_ms)


async def test_so_many_requests_are_open_at_a_time() -> None:
    gate, now, most = Gate(3, lambda seconds: None), 0, 0

    async def ask() -> None:
        nonlocal now, most
        async with gate.turn():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(ask() for _ in range(20)))
    assert most == 3


async def test_a_wait_that_the_server_states_holds_all_and_is_passed_on() -> None:
    told: list[float] = []
    gate = Gate(2, told.append)
    began = time.monotonic()
    assert await gate.again(refusal(), 1)
    async with gate.turn():
        assert time.monotonic() - began >= 0.05
    assert told == [0.05]


@pytest.mark.parametrize(
    "error",
    [
        refusal(500),
        refusal(wait_ms=None),
        refusal(wait_ms=0),
        refusal(wait_ms=round(module.LONGEST_HOLD * 1000) + 1),
        refusal(retryable=False),
    ],
)
async def test_other_refusals_are_errors(error: ModelError) -> None:
    told: list[float] = []
    assert not await Gate(1, told.append).again(error, 1)
    assert told == []


async def test_a_request_is_not_sent_for_ever() -> None:
    assert not await Gate(1, lambda seconds: None).again(refusal(), module.MOST_REFUSALS + 1)


async def test_waits_take_nothing_from_the_time_of_tasks() -> None:
    gate = Gate(1, lambda seconds: None)
    gate.hold(0.05)
    began = time.monotonic()

    async def work() -> None:
        async with asyncio.timeout(0.05) as bound:
            with gate.not_counted(bound):
                gate.hold(0.1)
                await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        await work()
    assert time.monotonic() - began >= 0.15
