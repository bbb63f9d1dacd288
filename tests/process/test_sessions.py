import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from ferrule.process.interactive import Session
from ferrule.process.launcher import Pty
from ferrule.process.plain import PlainLauncher
from ferrule.process.sessions import MAX_SESSIONS, SessionTable, UnknownSession
from tests.processes import gained, held


def counting() -> Callable[[int, int], int]:
    numbers = iter(range(1_000, 100_000))
    return lambda low, high: next(numbers)


@pytest.fixture
async def table() -> AsyncIterator[SessionTable]:
    table = SessionTable(counting())
    yield table
    await table.end_all()
    assert len(table) == 0


async def start(env: Mapping[str, str], *argv: str, **options: object) -> Session:
    return await Session.start(PlainLauncher(), argv, env=env, cwd="/tmp", **options)  # type: ignore[arg-type]


async def test_numbers_are_random_and_unique(env: Mapping[str, str]) -> None:
    drawn = iter([4242, 4242, 4242, 17_000])
    table = SessionTable(lambda low, high: next(drawn))
    numbers = [(await table.store(await start(env, "sleep", "60"))).number for _ in range(2)]
    assert numbers == [4242, 17_000]
    await table.end_all()
    free = (await SessionTable().store(await start(env, "true"))).number
    assert 1_000 <= free <= 99_999


async def test_b055_unknown_and_finished_numbers(env: Mapping[str, str], table: SessionTable) -> None:
    with pytest.raises(UnknownSession, match="Unknown process id 999"):
        table.get(999)
    number = (await table.store(await start(env, "true"))).number
    assert (await table.collect(number, 20_000)).ended
    with pytest.raises(UnknownSession, match=f"Unknown process id {number}"):
        await table.collect(number, 250)


async def test_b041_the_exit_code_comes_with_the_first_poll_after_the_exit(
    env: Mapping[str, str], table: SessionTable
) -> None:
    session = await start(env, "bash", "-c", "exit 9")
    number = (await table.store(session)).number
    while not session.ended:  # noqa: ASYNC110 - as a model would do, without a wait of its own
        await asyncio.sleep(0.01)
    collected = await table.collect(number, 0)
    assert collected.ended and collected.ended.exit_code == 9


async def test_a_full_table_ends_exited_ones_first_then_the_least_recently_used(
    env: Mapping[str, str], table: SessionTable
) -> None:
    stored = [await table.store(await start(env, "sleep", "60")) for _ in range(MAX_SESSIONS - 2)]
    exited = await start(env, "true")
    exited_number = (await table.store(exited)).number
    await exited.collect(20_000)
    first, second, third = (one.number for one in stored[:3])
    table.get(first)
    await table.store(await start(env, "sleep", "60"))
    for one in stored[-7:]:  # the exited one is not among the last eight any more
        table.get(one.number)
    assert len(table) == MAX_SESSIONS

    await table.store(await start(env, "sleep", "60"))
    with pytest.raises(UnknownSession):
        table.get(exited_number)

    lost = table._sessions[second]
    await table.store(await start(env, "sleep", "60"))
    assert lost.ended and lost.ended.status.signal == 15
    assert len(table) == MAX_SESSIONS
    table.get(first)
    table.get(third)


async def test_the_last_eight_are_protected_even_when_they_have_exited(
    env: Mapping[str, str], table: SessionTable
) -> None:
    stored = [await table.store(await start(env, "sleep", "60")) for _ in range(MAX_SESSIONS - 1)]
    exited = await start(env, "true")
    number = (await table.store(exited)).number
    await exited.collect(20_000)
    await table.store(await start(env, "sleep", "60"))
    table.get(number)
    with pytest.raises(UnknownSession):
        table.get(stored[0].number)


async def test_a_nearly_full_table_warns(env: Mapping[str, str], table: SessionTable) -> None:
    warnings = [(await table.store(await start(env, "sleep", "60"))).warning for _ in range(60)]
    assert warnings[:59] == [None] * 59
    assert warnings[59] and "60 sessions are open" in warnings[59]


async def test_b040_short_terminal_sessions_leave_nothing(env: Mapping[str, str], table: SessionTable) -> None:
    before = held()
    for _ in range(100):
        number = (await table.store(await start(env, "true", stdio=Pty()))).number
        assert (await table.collect(number, 20_000)).ended
    assert not gained(before).descriptors and len(table) == 0
