"""Vector stores, their files and batches, as the store keeps them."""

from collections.abc import AsyncIterator

import pytest

from ferrule.store import (
    FileBatch,
    FileCounts,
    FileRecord,
    NewStoreFile,
    NoSuchFile,
    Paging,
    Store,
    StoreRefusal,
    VectorStore,
)

DAY = 86_400


async def words() -> AsyncIterator[bytes]:
    yield b"words"


def store_file(file: str = "file-1") -> NewStoreFile:
    return NewStoreFile(file=file, param="file_id", max_tokens=800, overlap_tokens=400)


def batch(batch_id: str) -> FileBatch:
    return FileBatch(id=batch_id, store="vs_1", created_at=2)


async def filled(store: Store, *files: str, days: int | None = None) -> None:
    """A vector store with these files."""
    for file in files:
        await store.create_file(
            FileRecord(id=file, owner="us", created_at=1, filename=f"{file}.txt", purpose="p"), words()
        )
    made = VectorStore(id="vs_1", owner="us", created_at=1, last_active_at=1, expires_days=days)
    await store.create_vector_store(made, [store_file(file) for file in files])


async def counts(store: Store) -> FileCounts:
    found = await store.vector_store("us", "vs_1")
    assert found is not None
    return found.counts


async def test_files_are_counted_and_read_once(store: Store) -> None:
    await filled(store, "file-1", "file-2", "file-3")
    first, second, third = await store.unread_files()
    assert [one.file for one in (first, second, third)] == ["file-1", "file-2", "file-3"]
    assert await store.end_store_file(first.number, usage_bytes=7) == b"{}"
    assert await store.end_store_file(second.number, error=("invalid_file", "Why.")) == b"{}"
    assert await store.end_store_file(first.number, usage_bytes=9) is None, "it has ended"
    assert await counts(store) == FileCounts(in_progress=1, completed=1, failed=1)
    found = await store.vector_store("us", "vs_1")
    assert found is not None and found.usage_bytes == 7
    assert [one.file for one in await store.unread_files()] == ["file-3"]
    assert await store.filenames("vs_1", ["file-1", "file-2", "file-3", "file-4"]) == {
        "file-1": "file-1.txt",
        "file-3": "file-3.txt",
    }
    failed = await store.store_file("us", "vs_1", "file-2")
    assert failed is not None and (failed.error_code, failed.error) == ("invalid_file", "Why.")


async def test_a_file_that_is_added_again_is_one_entry_and_only_its_last_reader_counts(store: Store) -> None:
    await filled(store, "file-1")
    (old,) = await store.unread_files()
    (new,) = await store.add_store_files("us", "vs_1", [store_file(), store_file()], 3)
    assert await store.end_store_file(old.number) is None
    assert await store.unread_file(old.number) is None and await store.unread_file(new.number) is not None
    assert await store.end_store_file(new.number) == b"{}"
    assert await counts(store) == FileCounts(completed=1)


async def test_a_batch_counts_its_files_and_what_is_cancelled_is_not_read(store: Store) -> None:
    await filled(store, "file-1", "file-2", "file-3")
    made = await store.add_file_batch("us", batch("vsfb_1"), [store_file(f"file-{n}") for n in (1, 2, 2)])
    assert made is not None and made[0].counts == FileCounts(in_progress=2)
    await store.end_store_file(made[1][0].number)
    cancelled = await store.cancel_file_batch("us", "vs_1", "vsfb_1")
    assert cancelled is not None and cancelled.cancelled
    assert cancelled.counts == FileCounts(completed=1, cancelled=1)
    assert await store.end_store_file(made[1][1].number) is None
    assert [one.file for one in await store.unread_files()] == ["file-3"]
    await store.remove_store_file("us", "vs_1", "file-1")
    left = await store.file_batch("us", "vs_1", "vsfb_1")
    assert left is not None and left.counts == FileCounts(cancelled=2), "none is lost from the count"


async def test_files_are_listed_in_pages_by_state_and_batch(store: Store) -> None:
    await filled(store, "file-1", "file-2", "file-3")
    await store.add_file_batch("us", batch("vsfb_1"), [store_file("file-2")])
    page = await store.store_files("us", "vs_1", Paging(limit=2))
    assert page is not None and [one.id for one in page.data] == ["file-2", "file-3"] and page.has_more
    page = await store.store_files("us", "vs_1", Paging(after="file-3"))
    assert page is not None and [one.id for one in page.data] == ["file-1"]
    page = await store.store_files("us", "vs_1", Paging(), batch="vsfb_1")
    assert page is not None and [one.id for one in page.data] == ["file-2"]
    page = await store.store_files("us", "vs_1", Paging(), status="completed")
    assert page is not None and page.data == ()
    assert await store.store_files("us", "vs_1", Paging(), batch="vsfb_2") is None
    with pytest.raises(StoreRefusal):
        await store.store_files("us", "vs_1", Paging(limit=101))


async def test_a_file_that_does_not_exist_is_told_and_nothing_is_added(store: Store) -> None:
    await filled(store, "file-1")
    for call in (
        store.add_store_files("us", "vs_1", [store_file(), store_file("file-9")], 2),
        store.add_file_batch("us", batch("vsfb_1"), [store_file("file-9")]),
        store.create_vector_store(
            VectorStore(id="vs_2", owner="them", created_at=1, last_active_at=1), [store_file("file-1")]
        ),
    ):
        with pytest.raises(NoSuchFile):
            await call
    assert await counts(store) == FileCounts(in_progress=1)
    assert await store.vector_store("them", "vs_2") is None


async def test_a_deleted_or_expired_file_leaves_its_stores(store: Store) -> None:
    await filled(store, "file-1", "file-2")
    assert await store.stores_with("us", "file-1") == ["vs_1"]
    await store.delete_file("us", "file-1")
    assert await counts(store) == FileCounts(in_progress=1)
    soon = FileRecord(id="file-3", owner="us", created_at=1, filename="f", purpose="p", expires_at=2**40)
    await store.create_file(soon, words())
    await store.add_store_files("us", "vs_1", [store_file("file-3")], 2)
    assert await store.expiring_store_files(2**40) == [("vs_1", "file-3")]
    await store.expire_files(2**40)
    assert await store.all_store_files() == {"vs_1": frozenset({"file-2"})}


async def test_a_store_that_nobody_uses_expires_and_is_forgotten_later(store: Store) -> None:
    await filled(store, "file-1", days=2)
    await store.change_vector_store("us", "vs_1", {"last_active_at": 100})
    assert await store.expire_vector_stores(100 + 2 * DAY - 1) == []
    assert [await store.has_expired(100 + 2 * DAY + late) for late in (-1, 0)] == [False, True]
    assert await store.expire_vector_stores(100 + 2 * DAY) == ["vs_1"]
    assert await store.expire_vector_stores(100 + 2 * DAY) == [] and not await store.has_expired(100 + 2 * DAY)
    found = await store.vector_store("us", "vs_1")
    assert found is not None and found.expired and found.counts.total == 0
    assert await store.add_store_files("us", "vs_1", [store_file()], 3) == []
    assert await store.change_vector_store("us", "vs_1", {"name": "x"}) is None
    await store.expire_vector_stores(100 + 40 * DAY)
    assert await store.vector_store("us", "vs_1") is None
