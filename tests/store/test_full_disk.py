"""A disk that is full, or cannot be written."""

import os
import resource
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from ferrule.store import FileRecord, Paging, Store, StoreError, StoreFull
from tests.store.places import FILE, a_response, finish, opened

DISK = "size=4m"
BODY = os.urandom(100_000)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A disk of its own, in memory."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("this user cannot mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


async def fill(store: Store) -> int:
    """Store responses until one is refused; return its number."""
    number = 1
    with suppress(StoreFull):
        for number in count(1):
            await store.create_response(a_response(number, body=BODY))
    return number


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield BODY


async def test_a_full_disk_is_told_and_the_store_goes_on_when_there_is_space(tmp_path: Path) -> None:
    with mounted(tmp_path, DISK):
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(1_000_000))
        async with opened(tmp_path) as store:
            refused = await fill(store)
            assert refused > 5
            for _ in range(3):
                with pytest.raises(StoreFull, match="the disk is full; free some space"):
                    await finish(store, 1, transcript=BODY * 3)
            assert await store.response("us", "resp_1") == a_response(1, body=BODY)
            assert await store.response("us", f"resp_{refused}") is None
            with pytest.raises(StoreFull, match="No space left"):
                await store.create_file(
                    FileRecord(id="f", owner="us", created_at=1, filename="f", purpose="p"), endless()
                )
            assert list(Path(f"{tmp_path / FILE}.files").iterdir()) == []
            assert (await store.files("us", Paging())).data == ()
            ballast.unlink()
            assert await finish(store, 1, transcript=BODY)
            assert len(await store.unfinished(999)) == refused - 2
        async with opened(tmp_path) as store:
            record = await store.response("us", "resp_1")
            assert record is not None and record.transcript == BODY


async def test_a_disk_that_is_full_at_the_start_is_a_sentence(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=64k"):
        (tmp_path / "ballast").write_bytes(bytes(60_000))
        with pytest.raises(StoreError, match=r"disk is full|No space left"):
            await Store.open(tmp_path / FILE)
        (tmp_path / "ballast").unlink()
        with pytest.raises(StoreFull):  # 64 KB hold no store at all
            await Store.open(tmp_path / FILE)


async def test_a_limit_of_the_process_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create_response(a_response())
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        try:
            with pytest.raises(StoreError, match="could not be read or written; check the disk and its limits"):
                await finish(store, 1, transcript=BODY)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert await store.response("us", "resp_1") == a_response()
        assert await finish(store, 1, transcript=BODY)


async def test_a_disk_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=8m"):
        async with opened(tmp_path) as store:
            await store.create_response(a_response())
        mount("-o", "remount,ro", str(tmp_path))
        with pytest.raises(StoreError, match="Read-only file system"):
            await Store.open(tmp_path / FILE)
