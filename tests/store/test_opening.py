"""Opening a store, and what is wrong with a file that cannot be one."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ferrule.store import Store, StoreError, StoreInUse
from ferrule.store.schema import MIGRATIONS
from tests.store.places import FILE, a_chain, a_response, finish, opened

HOLDER = """
import asyncio, sys
from ferrule.store import Store
async def main():
    store = await Store.open(sys.argv[1])
    print("open", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


def test_importing_imports_no_database() -> None:
    program = "import sys, ferrule.store; assert not {'sqlalchemy', 'sqlite3'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_extra_there_is_a_sentence() -> None:
    program = "import sys; sys.modules['sqlalchemy'] = None\nfrom ferrule.store import StoreError, Store"
    result = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert result.stderr.splitlines()[-1].endswith(
        "UsageError: `ferrule serve` needs the extra `gateway`: pip install 'ferrule[gateway]'"
    )


async def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create_response(a_response())
        folder = (tmp_path / FILE).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}
    name = (tmp_path / FILE).name
    assert modes == dict.fromkeys((name, f"{name}-wal", f"{name}-shm", f"{name}.lock"), 0o600)
    (tmp_path / FILE).chmod(0o644)
    async with opened(tmp_path):
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has a store open."""
    words = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        yield process


async def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with holder(tmp_path / FILE) as process:
        with pytest.raises(StoreInUse, match=rf"in use .* \(process {process.pid}\); stop that one first"):
            await Store.open(tmp_path / FILE)
        async with await Store.open(tmp_path / FILE, shared=True) as beside:
            key = await beside.add_key("one")
        process.kill()
        process.wait()
    async with opened(tmp_path) as store:
        assert await store.owner_of(key) == "one"


async def test_a_short_command_keeps_no_server_out(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / FILE, shared=True) as command, opened(tmp_path) as server:
        key = await command.add_key("one")
        assert await server.owner_of(key) == "one"


async def test_stores_that_are_opened_at_once_are_made_once(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.sqlite"
        stores = await asyncio.gather(Store.open(path), *(Store.open(path, shared=True) for _ in range(3)))
        for name, store in zip("abcd", stores, strict=True):
            await store.add_key(name)
        assert await stores[0].keys() == ("a", "b", "c", "d")
        for store in stores:
            await store.aclose()


async def test_a_second_one_in_the_same_process_is_refused_and_leaves_the_first_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(StoreInUse):
            await Store.open(tmp_path / FILE)
        async with await Store.open(tmp_path / FILE, shared=True):
            await store.create_response(a_response())
        await finish(store)
    with pytest.raises(StoreError, match="closed"):
        await store.response("us", "resp_1")
    with pytest.raises(StoreError, match="closed"):
        await store.create_response(a_response(2))
    await store.aclose()
    async with opened(tmp_path) as store:
        assert await store.response("us", "resp_1")


async def test_closing_finishes_what_was_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        calls = [asyncio.ensure_future(store.create_response(a_response(number))) for number in range(300)]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    async with opened(tmp_path) as store:
        assert len(await store.unfinished(999)) == 300


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create_response(a_response())
    change(tmp_path / FILE, f"pragma user_version = {len(MIGRATIONS) + 1}")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="was written by a newer Ferrule"):
        await Store.open(tmp_path / FILE)
    assert (tmp_path / FILE).read_bytes() == before


async def test_migrations_are_applied_one_after_another_and_whole_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.create_response(a_response())
    more = (*MIGRATIONS, ("alter table keys add column note text",), ("create table later (a)", "no sql"))
    monkeypatch.setattr("ferrule.store.database.MIGRATIONS", more)
    with pytest.raises(StoreError, match="syntax error"):
        await Store.open(tmp_path / FILE)
    monkeypatch.setattr("ferrule.store.database.MIGRATIONS", more[:-1])
    async with opened(tmp_path) as store:
        assert await store.response("us", "resp_1")
    assert change(tmp_path / FILE, "select note from keys") == []
    assert change(tmp_path / FILE, "pragma user_version") == [(len(MIGRATIONS) + 1,)]


def change(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Run a statement as another program would."""
    connection = sqlite3.connect(path, isolation_level=None)
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


async def refusal(path: Path) -> str:
    """The sentence with which a file is refused; it is left as it is."""
    with pytest.raises(StoreError) as raised:
        await Store.open(path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


async def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"These are notes, and no database. " * 200)
    foreign = tmp_path / "foreign"
    change(foreign, "create table theirs (a)")
    before = (text.read_bytes(), foreign.read_bytes())
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    assert "is no database; move it away" in await refusal(text)
    assert "is a database of another program" in await refusal(foreign)
    assert "is not a file" in await refusal(tmp_path / "fifo")
    assert "is not a file" in await refusal(tmp_path / "folder")
    assert "cannot be made" in await refusal(text / "below")
    assert (text.read_bytes(), foreign.read_bytes()) == before


async def test_a_damaged_page_is_a_sentence(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await a_chain(store, 50)
    size = (tmp_path / FILE).stat().st_size
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreError, match="is damaged; restore a copy"):
        async with opened(tmp_path) as store:
            await store.chain("us", "resp_50")


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["deleted", "replaced"])
async def test_a_store_whose_file_is_not_in_its_place_any_more_takes_and_tells_nothing(
    tmp_path: Path, suffix: str, kind: str
) -> None:
    async with opened(tmp_path) as store:
        await store.create_response(a_response())
        path = Path(f"{tmp_path / FILE}{suffix}")
        path.rename(tmp_path / "aside")
        if kind == "replaced":
            shutil.copy(tmp_path / "aside", path)
        with pytest.raises(StoreError, match="was moved, replaced or deleted while it was in use; start"):
            await store.create_response(a_response(2))
        for result in await asyncio.gather(*[store.response("us", "resp_1")] * 3, return_exceptions=True):
            assert isinstance(result, StoreError)
        assert path.exists() == (kind == "replaced")
        path.unlink(missing_ok=True)
        (tmp_path / "aside").rename(path)
        await store.create_response(a_response(2))


async def test_what_was_deleted_is_not_in_the_files_any_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for number in range(1, 300):
            await store.create_response(a_response(number))
            await finish(store, number, transcript=b"the secret of %d " % number * 100)
        await store.delete_response("us", "resp_17")
    stored = (tmp_path / FILE).read_bytes()
    assert b"the secret of 16 " in stored
    assert b"the secret of 17 " not in stored
    async with opened(tmp_path) as store:
        assert await store.expire(299) == 297
    assert (tmp_path / FILE).stat().st_size < len(stored) / 3
    assert change(tmp_path / FILE, "select count(*) from item_places") == [(2,)]


async def test_a_lock_of_another_program_is_a_sentence_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.store.database.WAIT_SECONDS", 0.05)
    async with opened(tmp_path) as store:
        other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        other.execute("begin immediate")
        with pytest.raises(StoreError, match="is locked by another program"):
            await store.create_response(a_response())
        assert await store.response("us", "resp_1") is None
        other.execute("rollback")
        other.close()
        await store.create_response(a_response())
        assert await store.response("us", "resp_1")
