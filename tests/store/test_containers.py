"""Containers: whose they are, and which conversation goes on in which."""

from ferrule.store import ContainerRecord, Paging, Store


def record(number: int, owner: str = "us", lane: str | None = None, name: str = "") -> ContainerRecord:
    return ContainerRecord(
        id=f"cntr_{number}", owner=owner, created_at=number, lane=lane, name=name, details=b'{"a":1}'
    )


async def test_a_container_is_kept_found_and_forgotten(store: Store) -> None:
    made = [record(1, lane="r1"), record(2, lane="r1", name="two"), record(3, "them", lane="r1")]
    for one in made:
        await store.add_container(one)
    assert await store.container("us", "cntr_1") == made[0]
    assert await store.container("them", "cntr_1") is None
    assert await store.container_of("us", "r1") == made[1]
    assert await store.container_of("us", "r2") is None
    assert (await store.containers("us", Paging())).data == (made[1], made[0])
    assert (await store.containers("us", Paging(), "two")).data == (made[1],)
    assert not await store.delete_container("them", "cntr_1")
    assert await store.delete_container("us", "cntr_1")
    assert not await store.delete_container("us", "cntr_1")
    assert (await store.containers("us", Paging())).data == (made[1],)


async def test_what_a_client_brought_is_told_from_what_was_made(store: Store) -> None:
    await store.add_container(record(1))
    for path in ("a.csv", "a.csv", "b/c.txt"):
        await store.note_upload("us", "cntr_1", path)
    await store.note_upload("them", "cntr_1", "stolen")
    assert await store.uploads_in("us", "cntr_1") == {"a.csv", "b/c.txt"}
    assert await store.uploads_in("them", "cntr_1") == frozenset()
    await store.delete_container("us", "cntr_1")
    await store.add_container(record(1))
    assert await store.uploads_in("us", "cntr_1") == frozenset()


async def test_old_containers_are_forgotten_unless_they_live(store: Store) -> None:
    for one in (record(1), record(2), record(3, "them"), record(9)):
        await store.add_container(one)
    await store.note_upload("us", "cntr_1", "file")
    assert await store.expire_containers(4, {"cntr_2"}) == 2
    assert [one.id for one in (await store.containers("us", Paging())).data] == ["cntr_9", "cntr_2"]
    assert await store.container("them", "cntr_3") is None
