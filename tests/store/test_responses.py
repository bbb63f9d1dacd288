"""Responses: what is written is read again, ends are final, chains are whole."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection

from ferrule.store import Conversation, Paging, Store, StoreError, StoreRefusal
from ferrule.store.prepared import driver
from ferrule.store.records import MAX_CHAIN
from ferrule.store.responses import EXPIRED_AT_ONCE
from tests.store.places import a_chain, a_response, finish, item, opened


async def ids(store: Store, number: int) -> list[str]:
    """The ids of a chain."""
    return [record.id for record in await store.chain("us", f"resp_{number}")]


async def test_what_is_stored_is_read_again_after_a_restart(tmp_path: Path) -> None:
    record = a_response(conversation="conv_gone", background=True, input=(item("a"), item("b")))
    async with opened(tmp_path) as store:
        await store.create_response(record)
        assert await store.response("us", "resp_1") == record
        assert await finish(store, output=[item("c"), item("d")])
    async with opened(tmp_path) as store:
        ended = msgspec.structs.replace(
            record, status="completed", body=b'{"done":1}', output=(item("c"), item("d")), transcript=b"t1"
        )
        assert await store.response("us", "resp_1") == ended
        assert await store.response("us", "resp_2") is None


async def test_a_terminal_status_never_changes(store: Store) -> None:
    await store.create_response(a_response(status="queued"))
    assert await finish(store, status="cancelled", body=b'"cancelled"')
    before = await store.response("us", "resp_1")
    assert not await finish(store)
    assert await store.response("us", "resp_1") == before
    assert before is not None and before.status == "cancelled"


async def test_of_many_ends_at_once_one_counts(store: Store) -> None:
    for number in range(1, 21):
        await store.create_response(a_response(number))
        ends = ("completed", "cancelled", "failed")
        done = await asyncio.gather(*(finish(store, number, status=end, transcript=end.encode()) for end in ends))
        record = await store.response("us", f"resp_{number}")
        assert sum(done) == 1
        assert record is not None and record.status == ends[done.index(True)]
        assert record.transcript == record.status.encode()
        assert len(record.output) == 1


async def test_one_that_was_deleted_while_it_ran_does_not_come_back(store: Store) -> None:
    await store.create_response(a_response())
    assert await store.append_events("resp_1", 0, [b"a"])
    assert await store.delete_response("us", "resp_1")
    assert not await store.delete_response("us", "resp_1")
    assert not await finish(store)
    assert not await store.append_events("resp_1", 1, [b"b"])
    assert await store.response("us", "resp_1") is None
    assert await store.item("us", "in_1") is None
    assert await store.events("us", "resp_1") == ()


async def test_an_id_is_taken_once(store: Store) -> None:
    await store.create_response(a_response())
    with pytest.raises(StoreError, match="refused a change"):
        await store.create_response(a_response(body=b"another"))
    record = await store.response("us", "resp_1")
    assert record is not None and record.body == b'{"n":1}'


async def test_a_chain_begins_with_its_root(store: Store) -> None:
    await a_chain(store, 5)
    assert await ids(store, 5) == [f"resp_{number}" for number in range(1, 6)]
    assert await ids(store, 3) == ["resp_1", "resp_2", "resp_3"]
    assert await ids(store, 9) == []
    third = (await store.chain("us", "resp_5"))[2]
    assert third == await store.response("us", "resp_3")
    assert (third.parent, third.input, third.output) == ("resp_2", (item("in_3"),), (item("out_3"),))


async def test_after_a_deleted_parent_the_chain_begins_anew(store: Store) -> None:
    await a_chain(store, 5)
    await store.delete_response("us", "resp_3")
    assert await ids(store, 5) == ["resp_4", "resp_5"]
    assert (await store.chain("us", "resp_4"))[0].parent is None
    assert await ids(store, 2) == ["resp_1", "resp_2"]


async def test_a_parent_that_is_missing_is_left_out(store: Store) -> None:
    assert not await store.create_response(a_response(1, parent="resp_0"))
    assert not await store.create_response(a_response(2, parent="resp_2"))
    assert await store.create_response(a_response(3, owner="them"))
    assert not await store.create_response(a_response(4, parent="resp_3"))
    assert await store.create_response(a_response(5, parent="resp_4"))
    assert [(await store.chain("us", f"resp_{number}"))[0].parent for number in (1, 2, 4)] == [None, None, None]


async def test_a_chain_has_a_bound(store: Store) -> None:
    numbers = range(1, MAX_CHAIN + 2)
    records = [a_response(number, parent=f"resp_{number - 1}", input=()) for number in numbers]
    await asyncio.gather(*map(store.create_response, records))
    assert len(await ids(store, MAX_CHAIN)) == MAX_CHAIN
    with pytest.raises(StoreRefusal, match="compact") as raised:
        await store.chain("us", f"resp_{MAX_CHAIN + 1}")
    assert raised.value.param == "previous_response_id"


async def test_an_item_is_found_in_input_and_output_and_the_newest_counts(store: Store) -> None:
    await store.create_response(a_response(1, input=(item("same", "old"),)))
    await finish(store, 1)
    await store.create_response(a_response(2, input=(item("same", "new"),)))
    assert await store.item("us", "same") == item("same", "new")
    assert await store.item("us", "out_1") == item("out_1")
    assert await store.item("us", "none") is None
    await store.delete_response("us", "resp_2")
    assert await store.item("us", "same") == item("same", "old")


async def test_input_items_come_in_pages(store: Store) -> None:
    await store.create_response(a_response(input=tuple(item(f"i{number}") for number in range(5))))
    await finish(store)
    page = await store.input_items("us", "resp_1", Paging(limit=2, order="asc"))
    assert page is not None
    assert (page.data, page.has_more, page.first_id, page.last_id) == ((item("i0"), item("i1")), True, "i0", "i1")
    assert await store.input_items("us", "resp_2", Paging()) is None


async def test_events_keep_their_numbers_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create_response(a_response(background=True))
        assert await store.append_events("resp_1", 0, [b"a", b"b", b"c"])
        assert await store.append_events("resp_1", 3, [])
        assert await store.append_events("resp_1", 3, [b"d"])
    async with opened(tmp_path) as store:
        assert await store.events("us", "resp_1") == ((0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"))
        assert await store.events("us", "resp_1", 1) == ((2, b"c"), (3, b"d"))
        assert await store.events("us", "resp_1", 3) == ()
        with pytest.raises(StoreError, match="refused a change"):
            await store.append_events("resp_1", 3, [b"again"])


async def test_what_ran_when_the_process_ended_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for number, status in enumerate(("queued", "in_progress", "completed", "failed"), 1):
            await store.create_response(a_response(number, status=status, owner=f"owner {number}"))
    async with opened(tmp_path) as store:
        assert [record.id for record in await store.unfinished(9)] == ["resp_1", "resp_2"]
        assert [record.id for record in await store.unfinished(1)] == ["resp_1"]


async def test_what_is_old_expires_but_not_what_a_newer_response_continues(store: Store) -> None:
    await a_chain(store, 4)
    await store.create_response(a_response(50, parent="resp_2"))
    for number in (5, 6):
        await store.create_response(a_response(number))
    await finish(store, 5)
    await store.append_events("resp_5", 0, [b"a"])
    assert await store.expire(10) == 3
    left = [number for number in (1, 2, 3, 4, 5, 6, 50) if await store.response("us", f"resp_{number}")]
    assert left == [1, 2, 6, 50]
    assert await ids(store, 50) == ["resp_1", "resp_2", "resp_50"]
    assert await store.item("us", "out_5") is None
    await finish(store, 50)
    assert await store.expire(51) == 3


async def test_what_a_running_response_continues_does_not_expire(store: Store) -> None:
    await a_chain(store, 2)
    await store.create_response(a_response(3, parent="resp_2"))
    assert await store.expire(100) == 0
    await finish(store, 3)
    assert await store.expire(100) == 3


async def test_a_chain_expires_from_its_end_in_whatever_order_its_times_are(store: Store) -> None:
    for number, created_at in enumerate((40, 10, 30, 20), 1):
        await store.create_response(
            a_response(number, created_at=created_at, status="completed", parent=f"resp_{number - 1}")
        )
    await store.create_response(a_response(5, created_at=99, status="completed", parent="resp_3"))
    assert await store.expire(50) == 1
    assert await ids(store, 5) == ["resp_1", "resp_2", "resp_3", "resp_5"]
    await store.delete_response("us", "resp_5")
    while await store.expire(50):
        pass
    assert [await store.response("us", f"resp_{number}") for number in range(1, 5)] == [None] * 4


async def test_expiring_costs_as_much_for_each_of_many_as_of_few(store: Store) -> None:
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def watch(tx: Connection) -> None:
        driver(tx).set_progress_handler(count, 100)

    await store._database.write(watch)
    cost = []
    for many in (EXPIRED_AT_ONCE, 6 * EXPIRED_AT_ONCE):
        await asyncio.gather(
            *(store.create_response(a_response(n, status="completed", created_at=n % 7)) for n in range(many))
        )
        steps = 0
        assert await store.expire(7) == many
        cost.append(steps / many)
    assert cost[1] < 2 * cost[0]


async def test_a_finished_response_becomes_an_entry_of_its_conversation(store: Store) -> None:
    await store.create_conversation(Conversation(id="conv_1", owner="us", created_at=1))
    for number in (1, 2, 3):
        await store.create_response(a_response(number, conversation="conv_1"))
    await finish(store, 1)
    await finish(store, 2, to_conversation=False)
    await store.delete_conversation("us", "conv_1")
    assert await finish(store, 3)


async def test_a_call_that_is_cancelled_while_it_waits_is_whole_or_not_done(store: Store) -> None:
    calls = [asyncio.ensure_future(store.create_response(a_response(number))) for number in range(200)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    for number in range(200):
        record = await store.response("us", f"resp_{number}")
        assert record == a_response(number) or (record is None and number % 2 == 0)


async def test_one_that_fails_does_not_harm_those_committed_with_it(store: Store) -> None:
    numbers = [*range(50), 7, *range(50, 100)]
    done = await asyncio.gather(*(store.create_response(a_response(n)) for n in numbers), return_exceptions=True)
    assert [number for number, result in zip(numbers, done, strict=True) if result is not True] == [7]
    assert isinstance(done[50], StoreError)
    assert len(await store.unfinished(999)) == 100
