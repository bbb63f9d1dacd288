"""Conversations: entries in order, items that come and go, pages."""

import pytest

from ferrule.store import Conversation, Entry, Paging, Store, StoreRefusal
from tests.store.places import a_response, finish, item


@pytest.fixture(autouse=True)
async def conversation(store: Store) -> Conversation:
    """A conversation, stored."""
    record = Conversation(id="conv_1", owner="us", created_at=5, metadata=b'{"a":"b"}')
    await store.create_conversation(record)
    return record


async def listed(store: Store, **paging: object) -> tuple[list[str], bool]:
    """The ids of a page, and whether there are more."""
    page = await store.items("us", "conv_1", Paging(**paging))  # type: ignore[arg-type]
    assert page is not None
    found = [entry[22:].split(b'"')[1].decode() for entry in page.data]
    assert (page.first_id, page.last_id) == ((found[0], found[-1]) if found else (None, None))
    return found, page.has_more


async def test_a_conversation_is_kept_changed_and_deleted(store: Store, conversation: Conversation) -> None:
    assert await store.conversation("us", "conv_1") == conversation
    changed = await store.update_conversation("us", "conv_1", b"{}")
    assert changed is not None and changed.metadata == b"{}"
    assert await store.conversation("us", "conv_1") == changed
    assert await store.add_items("us", "conv_1", [item("a")], b"t")
    assert await store.delete_conversation("us", "conv_1")
    assert not await store.delete_conversation("us", "conv_1")
    assert await store.conversation("us", "conv_1") is None
    assert await store.update_conversation("us", "conv_1", b"{}") is None
    assert await store.conversation_entries("us", "conv_1") is None
    assert await store.items("us", "conv_1", Paging()) is None
    assert not await store.add_items("us", "conv_1", [item("a")])


async def test_a_finished_response_becomes_an_entry(store: Store) -> None:
    await store.add_items("us", "conv_1", [item("given")])
    for number in (1, 2):
        await store.create_response(a_response(number, conversation="conv_1"))
    assert await finish(store, 1)
    assert await finish(store, 2, status="failed", to_conversation=False)
    assert not await finish(store, 1)
    assert await store.conversation_entries("us", "conv_1") == (
        Entry((item("given"),), None),
        Entry((item("in_1"), item("out_1")), b"t1"),
    )


async def test_a_response_ends_though_its_conversation_was_deleted(store: Store) -> None:
    await store.create_response(a_response(conversation="conv_1"))
    await store.delete_conversation("us", "conv_1")
    assert await finish(store)
    assert await store.conversation("us", "conv_1") is None


async def test_an_item_that_is_deleted_takes_the_transcript_of_its_entry_along(store: Store) -> None:
    await store.add_items("us", "conv_1", [item("a"), item("b")], b"first")
    await store.add_items("us", "conv_1", [item("c")], b"second")
    assert await store.delete_item("us", "conv_1", "a")
    assert not await store.delete_item("us", "conv_1", "a")
    assert await store.conversation_item("us", "conv_1", "a") is None
    assert await store.conversation_item("us", "conv_1", "b") == item("b")
    assert await store.conversation_entries("us", "conv_1") == (
        Entry((item("b"),), None),
        Entry((item("c"),), b"second"),
    )


async def test_an_item_that_is_there_stays_as_it_is(store: Store) -> None:
    await store.add_items("us", "conv_1", [item("a", "old")])
    await store.add_items("us", "conv_1", [item("a", "new"), item("b")])
    assert await store.conversation_item("us", "conv_1", "a") == item("a", "old")
    assert await listed(store, order="asc") == (["a", "b"], False)


async def test_pages_go_both_ways(store: Store) -> None:
    assert await listed(store) == ([], False)
    await store.add_items("us", "conv_1", [item(name) for name in "abcde"])
    assert await listed(store, limit=2) == (["e", "d"], True)
    assert await listed(store, limit=2, after="d") == (["c", "b"], True)
    assert await listed(store, limit=2, after="b") == (["a"], False)
    assert await listed(store, limit=2, order="asc") == (["a", "b"], True)
    assert await listed(store, limit=2, order="asc", after="b") == (["c", "d"], True)
    assert await listed(store, limit=3, order="asc", after="b") == (["c", "d", "e"], False)
    assert await listed(store, limit=2, order="asc", before="d") == (["b", "c"], True)
    assert await listed(store, limit=2, order="asc", before="c") == (["a", "b"], False)
    assert await listed(store, limit=2, before="b") == (["d", "c"], True)
    assert await listed(store, order="asc", after="a", before="d") == (["b", "c"], False)


@pytest.mark.parametrize(
    ("paging", "param"),
    [
        (Paging(after="none"), "after"),
        (Paging(before="none"), "before"),
        (Paging(limit=0), "limit"),
        (Paging(limit=101), "limit"),
    ],
)
async def test_a_page_that_cannot_be_is_refused(store: Store, paging: Paging, param: str) -> None:
    with pytest.raises(StoreRefusal) as raised:
        await store.items("us", "conv_1", paging)
    assert raised.value.param == param
