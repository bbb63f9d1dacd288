"""Files: contents beside the database, uploads in parts, and what is left of neither."""

import asyncio
import hashlib
import os
import stat
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.store import FileRecord, Paging, Store, StoreError, StoreRefusal, TooLarge, Upload, UploadPart
from ferrule.store.contents import BLOCK
from ferrule.store.files import MAX_FILE_BYTES, MAX_PART_BYTES, MAX_UPLOAD_BYTES, REMEMBERED_SECONDS
from tests.store.places import FILE, opened

LARGE = bytes(range(256)) * 10_000


async def chunks(content: bytes, size: int = 70_000) -> AsyncIterator[bytes]:
    """A content as it comes over the wire."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def endless(block: bytes = bytes(BLOCK)) -> AsyncIterator[bytes]:
    while True:
        yield block


async def broken() -> AsyncIterator[bytes]:
    yield bytes(2 * BLOCK)
    raise ConnectionError("the client is gone")


def a_file(number: int = 1, **fields: Any) -> FileRecord:
    given: dict[str, Any] = {"id": f"file-{number}", "owner": "us", "created_at": number}
    return FileRecord(**given | {"filename": f"../{number}.txt", "purpose": "user_data"} | fields)


def an_upload(content: bytes = LARGE, **fields: Any) -> Upload:
    given: dict[str, Any] = {"id": "upload_1", "owner": "us", "created_at": 1, "filename": "f", "purpose": "vision"}
    return Upload(**given | {"bytes": len(content), "mime_type": "text/plain", "expires_at": 100} | fields)


async def add(store: Store, part: str, content: bytes) -> UploadPart:
    kept = await store.add_part("us", UploadPart(id=part, upload="upload_1", created_at=2), chunks(content), now=2)
    assert kept is not None
    return kept


async def read(store: Store, file_id: str = "file-1") -> bytes | None:
    content = await store.content("us", file_id)
    return None if content is None else b"".join([block async for block in content])


def contents(folder: Path) -> list[Path]:
    """What lies in the folder of contents."""
    return sorted(Path(f"{folder / FILE}.files").iterdir())


async def test_a_file_is_streamed_in_and_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        kept = await store.create_file(a_file(), chunks(LARGE))
        assert kept == a_file(bytes=len(LARGE))
        assert await store.create_file(a_file(2), chunks(b"")) == a_file(2)
    async with opened(tmp_path) as store:
        assert await store.file("us", "file-1") == kept
        assert await read(store) == LARGE
        assert await read(store, "file-2") == b""
        assert await read(store, "file-3") is None
        (path, empty) = contents(tmp_path)
        assert {stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(empty.stat().st_mode)} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_who_reads_a_file_is_not_disturbed_when_it_is_deleted(store: Store, tmp_path: Path) -> None:
    await store.create_file(a_file(), chunks(LARGE))
    content = await store.content("us", "file-1")
    assert content is not None
    assert await store.delete_file("us", "file-1")
    assert contents(tmp_path) == []
    assert b"".join([block async for block in content]) == LARGE
    assert not await store.delete_file("us", "file-1")
    assert await store.file("us", "file-1") is None


async def test_files_are_listed_by_purpose_in_pages(store: Store) -> None:
    for number in range(1, 6):
        await store.create_file(a_file(number, purpose="vision" if number % 2 else "batch"), chunks(b"x"))
    page = await store.files("us", Paging(limit=2, order="asc"), "vision")
    assert ([file.id for file in page.data], page.has_more) == (["file-1", "file-3"], True)
    page = await store.files("us", Paging(limit=10_000))
    assert ([file.id for file in page.data], page.has_more) == ([f"file-{n}" for n in (5, 4, 3, 2, 1)], False)


async def test_of_a_file_that_is_too_large_or_breaks_off_nothing_is_left(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        await store.create_file(a_file(), broken())
    await store.create_upload(an_upload())
    with pytest.raises(TooLarge, match="67,108,864") as raised:
        await store.add_part("us", UploadPart(id="p", upload="upload_1", created_at=2), endless(), now=2)
    assert raised.value.param == "data"
    assert contents(tmp_path) == []
    assert await store.file("us", "file-1") is None
    assert (MAX_FILE_BYTES, MAX_PART_BYTES, MAX_UPLOAD_BYTES) == (512 << 20, 64 << 20, 8 << 30)


@pytest.mark.parametrize(("limit", "most"), [("MAX_PARTS", 2), ("MAX_UPLOAD_BYTES", 5)])
async def test_an_upload_takes_no_more_than_a_file_may_have(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    await store.create_upload(an_upload(b"12345"))
    monkeypatch.setattr(f"ferrule.store.files.{limit}", most)
    await add(store, "a", b"12")
    await add(store, "b", b"345")
    with pytest.raises(TooLarge):
        await add(store, "c", b"6")
    assert len(contents(tmp_path)) == 2


async def test_of_an_upload_that_is_cancelled_midway_nothing_is_left(store: Store, tmp_path: Path) -> None:
    began = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(BLOCK)
        began.set()
        await asyncio.Event().wait()

    call = asyncio.ensure_future(store.create_file(a_file(), slow()))
    await began.wait()
    assert len(contents(tmp_path)) == 1
    call.cancel()
    await asyncio.wait([call])
    assert contents(tmp_path) == []


class Held:
    """The store's writer, held in the middle of a transaction, which all that waits joins."""

    def __init__(self, store: Store) -> None:
        self._database = store._database
        self._gates = threading.Event(), threading.Event()
        self._waits = threading.Event(), threading.Event()
        self._held: list[asyncio.Task[bool]] = []

    def _hold(self, which: int) -> "asyncio.Task[bool]":
        def wait(_: object) -> bool:
            self._waits[which].set()
            return self._gates[which].wait()

        return asyncio.ensure_future(self._database.write(wait))

    async def begin(self) -> None:
        """Hold it; what is written from now on waits for the next transaction."""
        self._held = [self._hold(0)]
        await asyncio.to_thread(self._waits[0].wait)
        self._held.append(self._hold(1))

    async def behind(self, waiting: int) -> None:
        """Wait until so many changes wait."""
        while self._database._writer._queue.qsize() < waiting + 1:  # noqa: ASYNC110 (a queue of threads tells nobody)
            await asyncio.sleep(0.001)

    async def join(self) -> None:
        """Put what waits into one transaction, and hold that."""
        self._gates[0].set()
        await asyncio.to_thread(self._waits[1].wait)

    async def end(self) -> None:
        """Let it go on, and wait until all is done."""
        for gate in self._gates:
            gate.set()
        await asyncio.gather(*self._held, return_exceptions=True)
        await self._database.write(lambda _: None)


@pytest.mark.parametrize("by", ["its caller", "the end of the loop"])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_file_that_is_cancelled_while_it_is_committed_is_whole_or_not_there(
    tmp_path: Path, by: str, begun: bool
) -> None:
    async with opened(tmp_path) as store:
        held = Held(store)
        await held.begin()
        call = asyncio.ensure_future(store.create_file(a_file(), chunks(b"12345")))
        await held.behind(1)
        if begun:
            await held.join()
        others = asyncio.all_tasks() - {asyncio.current_task(), *held._held}
        for task in [call] if by == "its caller" else others:
            task.cancel()
        await asyncio.sleep(0)
        await held.end()
        await asyncio.wait([call])
    async with opened(tmp_path) as store:
        found = await store.file("us", "file-1")
        assert (found is not None) == (begun or by == "its caller")
        assert await read(store) == (b"12345" if found else None)
        assert len(contents(tmp_path)) == (1 if found else 0)


async def test_an_id_that_is_taken_leaves_the_first_file_alone(store: Store, tmp_path: Path) -> None:
    await store.create_file(a_file(), chunks(b"first"))
    with pytest.raises(StoreError, match="refused a change"):
        await store.create_file(a_file(), chunks(b"second"))
    assert await read(store) == b"first"
    assert len(contents(tmp_path)) == 1


async def test_remnants_go_at_the_next_start_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create_file(a_file(), chunks(b"kept"))
        await store.create_upload(an_upload())
        await add(store, "part", b"kept, too")
    folder = Path(f"{tmp_path / FILE}.files")
    known = contents(tmp_path)
    (folder / ("a" * 32)).write_bytes(b"half a file")
    others = [folder / "notes.txt", folder / ("b" * 32), folder / ("c" * 32)]
    others[0].write_bytes(b"the user's")
    others[1].symlink_to(others[0])
    os.mkfifo(others[2])
    async with await Store.open(tmp_path / FILE, shared=True):
        pass
    async with opened(tmp_path), await Store.open(tmp_path / FILE, shared=True):
        assert contents(tmp_path) == sorted([*known, *others])


async def test_a_shared_store_leaves_the_uploads_of_the_other_alone(store: Store, tmp_path: Path) -> None:
    half = Path(f"{tmp_path / FILE}.files", "a" * 32)
    half.write_bytes(b"on its way")
    async with await Store.open(tmp_path / FILE, shared=True):
        assert half.exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "gone", "longer"])
async def test_what_took_the_place_of_a_content_is_not_read(store: Store, tmp_path: Path, kind: str) -> None:
    await store.create_file(a_file(), chunks(b"12345"))
    (path,) = contents(tmp_path)
    path.unlink()
    secret = tmp_path / "secret"
    secret.write_bytes(b"abcde")
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "longer":
        path.write_bytes(b"123456")
    with pytest.raises(StoreError, match=path.name):
        await read(store)
    assert await store.delete_file("us", "file-1")
    assert path.is_symlink() == (kind == "link")
    assert secret.read_bytes() == b"abcde"


@pytest.mark.parametrize("kind", ["moved", "replaced", "deleted"])
async def test_a_folder_of_contents_that_is_not_in_its_place_takes_nothing(
    store: Store, tmp_path: Path, kind: str
) -> None:
    folder = Path(f"{tmp_path / FILE}.files")
    if kind == "deleted":
        folder.rmdir()
    else:
        folder.rename(tmp_path / "aside")
    if kind == "replaced":
        folder.symlink_to(tmp_path / "aside")
    with pytest.raises(StoreError):
        await store.create_file(a_file(), chunks(b"x"))
    assert await store.file("us", "file-1") is None
    assert kind == "deleted" or list((tmp_path / "aside").iterdir()) == []


async def test_a_folder_of_contents_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    Path(f"{tmp_path / FILE}.files").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be made"):
        await Store.open(tmp_path / FILE)


async def test_parts_in_their_order_become_a_file(store: Store, tmp_path: Path) -> None:
    await store.create_upload(an_upload())
    half = len(LARGE) // 2
    second, first = await asyncio.gather(add(store, "second", LARGE[half:]), add(store, "first", LARGE[:half]))
    await add(store, "unused", b"x")
    assert (first.bytes, second.bytes) == (half, len(LARGE) - half)
    md5 = hashlib.md5(LARGE).hexdigest().upper()
    done = await store.complete_upload("us", "upload_1", ["first", "second"], file_id="file-1", now=50, md5=md5)
    assert done == (
        an_upload(status="completed", file="file-1"),
        FileRecord(id="file-1", owner="us", created_at=50, filename="f", purpose="vision", bytes=len(LARGE)),
    )
    assert await store.upload("us", "upload_1") == done[0]
    assert await read(store) == LARGE
    assert len(contents(tmp_path)) == 1
    for call in (
        store.complete_upload("us", "upload_1", ["first"], file_id="file-2", now=50),
        store.add_part("us", UploadPart(id="late", upload="upload_1", created_at=2), chunks(b"x"), now=50),
        store.cancel_upload("us", "upload_1"),
    ):
        with pytest.raises(StoreRefusal, match="is completed"):
            await call


@pytest.mark.parametrize(
    ("part_ids", "md5", "message", "param"),
    [
        (["a", "none"], None, "no part 'none'", "part_ids"),
        (["a", "a", "b"], None, "named twice", "part_ids"),
        (["a"], None, "have 2 bytes, but 3 were announced", "part_ids"),
        (["b", "a"], hashlib.md5(b"aab").hexdigest(), "have the MD5 sum", "md5"),
    ],
)
async def test_parts_that_do_not_make_the_whole_are_refused(
    store: Store, tmp_path: Path, part_ids: list[str], md5: str | None, message: str, param: str
) -> None:
    await store.create_upload(an_upload(b"aab"))
    await add(store, "a", b"aa")
    await add(store, "b", b"b")
    with pytest.raises(StoreRefusal, match=message) as raised:
        await store.complete_upload("us", "upload_1", part_ids, file_id="file-1", now=50, md5=md5)
    assert raised.value.param == param
    assert len(contents(tmp_path)) == 2
    assert await store.complete_upload("us", "upload_1", ["a", "b"], file_id="file-1", now=50)
    assert await read(store) == b"aab"


async def test_an_upload_that_is_cancelled_while_it_is_completed_is_told_to_be_so(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create_upload(an_upload())
    await add(store, "all", LARGE)
    receive = store._contents.receive

    async def cancelled(*args: Any, **kwargs: Any) -> Any:
        await store.cancel_upload("us", "upload_1")
        return await receive(*args, **kwargs)

    monkeypatch.setattr(store._contents, "receive", cancelled)
    with pytest.raises(StoreRefusal, match="is cancelled"):
        await store.complete_upload("us", "upload_1", ["all"], file_id="file-1", now=50)
    assert contents(tmp_path) == []


async def test_of_two_that_complete_an_upload_at_once_one_does(store: Store, tmp_path: Path) -> None:
    await store.create_upload(an_upload())
    await add(store, "all", LARGE)
    calls = (store.complete_upload("us", "upload_1", ["all"], file_id=f"file-{n}", now=50) for n in range(4))
    done = await asyncio.gather(*calls, return_exceptions=True)
    (won,) = [result for result in done if isinstance(result, tuple)]
    assert all(isinstance(result, StoreRefusal) for result in done if result is not won)
    assert len(contents(tmp_path)) == 1
    assert await read(store, won[1].id) == LARGE


async def test_a_cancelled_upload_loses_its_parts(store: Store, tmp_path: Path) -> None:
    await store.create_upload(an_upload())
    await add(store, "all", LARGE)
    cancelled = await store.cancel_upload("us", "upload_1")
    assert cancelled == an_upload(status="cancelled") == await store.upload("us", "upload_1")
    with pytest.raises(StoreRefusal, match="is cancelled already"):
        await store.cancel_upload("us", "upload_1")
    assert contents(tmp_path) == []
    with pytest.raises(StoreRefusal, match="is cancelled"):
        await add(store, "more", b"x")


async def test_what_has_a_time_expires(store: Store, tmp_path: Path) -> None:
    later = int(time.time()) + 3600
    await store.create_file(a_file(1, expires_at=later), chunks(b"a"))
    await store.create_file(a_file(2, expires_at=later + 1), chunks(b"b"))
    await store.create_file(a_file(3), chunks(b"c"))
    await store.create_upload(an_upload(expires_at=10))
    await add(store, "all", LARGE)
    with pytest.raises(StoreRefusal, match="is expired"):
        await store.complete_upload("us", "upload_1", ["all"], file_id="file-4", now=10)
    assert await store.expire_files(10) == 1
    assert len(contents(tmp_path)) == 3
    assert await store.expire_files(later) == 1
    assert len(contents(tmp_path)) == 2
    assert [file.id for file in (await store.files("us", Paging())).data] == ["file-3", "file-2"]


async def test_an_upload_that_ended_is_remembered_for_a_day(store: Store) -> None:
    await store.create_upload(an_upload(expires_at=10))
    assert await store.expire_files(10) == 1
    assert await store.expire_files(10 + REMEMBERED_SECONDS) == 0
    upload = await store.upload("us", "upload_1")
    assert upload is not None and upload.status == "expired"
    await store.expire_files(11 + REMEMBERED_SECONDS)
    assert await store.upload("us", "upload_1") is None


async def test_a_file_is_gone_as_soon_as_its_time_has_come(store: Store, tmp_path: Path) -> None:
    now = int(time.time())
    await store.create_file(a_file(1, expires_at=now), chunks(b"a"))
    await store.create_file(a_file(2, expires_at=now + 3600), chunks(b"b"))
    assert await store.file("us", "file-1") is None and await read(store) is None
    assert not await store.delete_file("us", "file-1")
    assert [file.id for file in (await store.files("us", Paging())).data] == ["file-2"]
    assert await store.expire_files(now) == 1
    assert len(contents(tmp_path)) == 1


async def test_the_file_of_an_upload_is_kept_as_long_as_was_asked(store: Store) -> None:
    now = int(time.time())
    await store.create_upload(an_upload(b"x", expires_at=now + 60, kept_seconds=3600))
    await store.add_part("us", UploadPart(id="p", upload="upload_1", created_at=now), chunks(b"x"), now=now)
    done = await store.complete_upload("us", "upload_1", ["p"], file_id="file-1", now=now + 5)
    assert done is not None and done[1].expires_at == now + 3605


async def test_an_upload_that_is_not_there_is_told(store: Store) -> None:
    part = UploadPart(id="p", upload="upload_1", created_at=2)
    assert await store.upload("us", "upload_1") is None
    assert await store.add_part("us", part, endless(), now=2) is None
    assert await store.complete_upload("us", "upload_1", [], file_id="f", now=2) is None
    assert await store.cancel_upload("us", "upload_1") is None
    with pytest.raises(TooLarge):
        await store.create_upload(an_upload(bytes=MAX_UPLOAD_BYTES + 1))
