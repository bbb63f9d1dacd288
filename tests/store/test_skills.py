"""Skills and their versions: whose they are, which one counts, and their zips on the disk."""

import os
from pathlib import Path

import pytest

from ferrule.store import LATEST, Paging, SkillVersion, Store, StoreRefusal, TooLarge
from ferrule.store.skills import MAX_BUNDLE_BYTES
from tests.store.places import FILE


def version(number: int, skill: str = "skill_1") -> SkillVersion:
    return SkillVersion(
        id=f"skillver_{number}", skill=skill, created_at=number, name=f"n{number}", description=f"d{number}"
    )


async def zip_at(store: Store, which: int | None) -> bytes | None:
    content = await store.skill_content("us", "skill_1", which)
    return None if content is None else b"".join([block async for block in content])


async def test_versions_are_counted_and_one_of_them_is_the_default(store: Store) -> None:
    made = await store.create_skill("us", version(1), b"one")
    assert (made.name, made.default_version, made.latest_version) == ("n1", 1, 1)
    second = await store.add_skill_version("us", version(2), b"two", default=False)
    third = await store.add_skill_version("us", version(3), b"three", default=True)
    assert second is not None and third is not None
    assert (second.version, second.bytes, third.version) == (2, 3, 3)
    found = await store.skill("us", "skill_1")
    assert found is not None and (found.name, found.default_version, found.latest_version) == ("n3", 3, 3)
    assert await store.skill_version("us", "skill_1", 2) == second
    page = await store.skill_versions("us", "skill_1", Paging(limit=2))
    assert page is not None and (page.data, page.has_more) == ((third, second), True)
    changed = await store.set_default_version("us", "skill_1", 2)
    assert changed is not None and (changed.description, changed.latest_version) == ("d2", 3)
    assert [await zip_at(store, which) for which in (None, LATEST, 1, 4)] == [b"two", b"three", b"one", None]


async def test_a_number_is_never_given_twice(store: Store) -> None:
    await store.create_skill("us", version(1), b"one")
    await store.add_skill_version("us", version(2), b"two", default=False)
    assert await store.delete_skill_version("us", "skill_1", 2) is not None
    found = await store.skill("us", "skill_1")
    assert found is not None and found.latest_version == 1
    third = await store.add_skill_version("us", version(3), b"three", default=False)
    assert third is not None and third.version == 3
    with pytest.raises(StoreRefusal, match="is the default"):
        await store.delete_skill_version("us", "skill_1", 1)
    with pytest.raises(StoreRefusal, match="no version 2") as raised:
        await store.set_default_version("us", "skill_1", 2)
    assert raised.value.param == "default_version"


async def test_what_is_deleted_is_gone_from_the_disk_and_what_is_kept_outlives_the_store(tmp_path: Path) -> None:
    folder = tmp_path / f"{FILE}.files"
    async with await Store.open(tmp_path / FILE) as store:
        await store.create_skill("us", version(1), b"one")
        await store.add_skill_version("us", version(2), b"two", default=True)
        await store.delete_skill_version("us", "skill_1", 1)
        with pytest.raises(TooLarge) as raised:
            await store.create_skill("us", version(3, "skill_3"), bytes(MAX_BUNDLE_BYTES + 1))
        assert raised.value.param == "files" and len(os.listdir(folder)) == 1
    async with await Store.open(tmp_path / FILE) as store:
        assert await zip_at(store, None) == b"two"
        assert await store.delete_skill("us", "skill_1")
        assert not await store.delete_skill("us", "skill_1")
    assert os.listdir(folder) == []
