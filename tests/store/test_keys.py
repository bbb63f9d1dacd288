"""Keys: shown once, kept as hashes."""

import re
from pathlib import Path

import pytest

from ferrule.store import Store, StoreRefusal
from tests.store.places import FILE, opened


async def test_a_key_is_known_until_it_is_removed(store: Store) -> None:
    assert not await store.has_keys()
    key, other = await store.add_key("one"), await store.add_key("another")
    assert re.fullmatch(r"fk-[A-Za-z0-9_-]{43}", key)
    assert (await store.owner_of(key), await store.owner_of(other)) == ("one", "another")
    for wrong in ("", "fk-", key[:-1], f"{key}=", key.upper(), "\udcff"):
        assert await store.owner_of(wrong) is None
    assert await store.keys() == ("another", "one")
    assert await store.has_keys()
    assert await store.remove_key("one")
    assert not await store.remove_key("one")
    assert await store.owner_of(key) is None
    assert await store.keys() == ("another",)


async def test_a_name_is_taken_once(store: Store) -> None:
    key = await store.add_key("one")
    with pytest.raises(StoreRefusal, match="remove it first"):
        await store.add_key("one")
    assert await store.owner_of(key) == "one"


@pytest.mark.parametrize("name", ["", "two words", "a\nline", "x" * 65])
async def test_a_name_is_a_word(store: Store, name: str) -> None:
    with pytest.raises(StoreRefusal, match="a key's name is"):
        await store.add_key(name)


async def test_only_the_hash_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        key = await store.add_key("one")
    stored = b"".join(path.read_bytes() for path in (tmp_path / FILE).parent.iterdir() if path.is_file())
    assert b"one" in stored
    assert key.encode() not in stored and key[3:].encode() not in stored
