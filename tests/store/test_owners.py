"""Nobody sees or changes what belongs to another."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ferrule.store import (
    ContainerRecord,
    Conversation,
    FileRecord,
    Page,
    Paging,
    Store,
    Upload,
    UploadPart,
    VectorStore,
)
from tests.store.places import a_response, finish, item
from tests.store.test_skills import version
from tests.store.test_vector_stores import batch, store_file

Call = Callable[[Store, str], Awaitable[object]]


async def content() -> AsyncIterator[bytes]:
    yield b"ours"


async def read(store: Store, owner: str) -> list[bytes]:
    found = await store.content(owner, "file-1")
    return [] if found is None else [block async for block in found]


async def read_skill(store: Store, owner: str) -> list[bytes]:
    found = await store.skill_content(owner, "skill_1")
    return [] if found is None else [block async for block in found]


CALLS: dict[str, Call] = {
    "response": lambda store, owner: store.response(owner, "resp_1"),
    "chain": lambda store, owner: store.chain(owner, "resp_1"),
    "item": lambda store, owner: store.item(owner, "in_1"),
    "input_items": lambda store, owner: store.input_items(owner, "resp_1", Paging()),
    "events": lambda store, owner: store.events(owner, "resp_1"),
    "finish_response": lambda store, owner: finish(store, 2, owner),
    "delete_response": lambda store, owner: store.delete_response(owner, "resp_1"),
    "conversation": lambda store, owner: store.conversation(owner, "conv_1"),
    "update_conversation": lambda store, owner: store.update_conversation(owner, "conv_1", b"x"),
    "items": lambda store, owner: store.items(owner, "conv_1", Paging()),
    "conversation_item": lambda store, owner: store.conversation_item(owner, "conv_1", "in_1"),
    "conversation_entries": lambda store, owner: store.conversation_entries(owner, "conv_1"),
    "add_items": lambda store, owner: store.add_items(owner, "conv_1", [item("more")]),
    "delete_item": lambda store, owner: store.delete_item(owner, "conv_1", "in_1"),
    "delete_conversation": lambda store, owner: store.delete_conversation(owner, "conv_1"),
    "file": lambda store, owner: store.file(owner, "file-1"),
    "files": lambda store, owner: store.files(owner, Paging()),
    "content": read,
    "delete_file": lambda store, owner: store.delete_file(owner, "file-1"),
    "upload": lambda store, owner: store.upload(owner, "upload_1"),
    "add_part": lambda store, owner: store.add_part(
        owner, UploadPart(id="part_2", upload="upload_1", created_at=1), content(), now=1
    ),
    "complete_upload": lambda store, owner: store.complete_upload(
        owner, "upload_1", ["part_1"], file_id=f"file-of-{owner}", now=1
    ),
    "cancel_upload": lambda store, owner: store.cancel_upload(owner, "upload_1"),
    "container": lambda store, owner: store.container(owner, "cntr_1"),
    "container_of": lambda store, owner: store.container_of(owner, "resp_1"),
    "containers": lambda store, owner: store.containers(owner, Paging()),
    "note_upload": lambda store, owner: store.note_upload(owner, "cntr_1", "more"),
    "uploads_in": lambda store, owner: store.uploads_in(owner, "cntr_1"),
    "change_container": lambda store, owner: store.change_container(owner, "cntr_1", b"{}"),
    "skill": lambda store, owner: store.skill(owner, "skill_1"),
    "skills": lambda store, owner: store.skills(owner, Paging()),
    "skill_version": lambda store, owner: store.skill_version(owner, "skill_1"),
    "skill_versions": lambda store, owner: store.skill_versions(owner, "skill_1", Paging()),
    "skill_content": read_skill,
    "add_skill_version": lambda store, owner: store.add_skill_version(owner, version(3), b"zip", default=True),
    "set_default_version": lambda store, owner: store.set_default_version(owner, "skill_1", 2),
    "delete_skill_version": lambda store, owner: store.delete_skill_version(owner, "skill_1", 2),
    "delete_skill": lambda store, owner: store.delete_skill(owner, "skill_1"),
    "delete_container": lambda store, owner: store.delete_container(owner, "cntr_1"),
    "vector_store": lambda store, owner: store.vector_store(owner, "vs_1"),
    "vector_stores": lambda store, owner: store.vector_stores(owner, Paging()),
    "change_vector_store": lambda store, owner: store.change_vector_store(owner, "vs_1", {"name": "x"}),
    "add_store_files": lambda store, owner: store.add_store_files(owner, "vs_1", [store_file()], 2),
    "add_file_batch": lambda store, owner: store.add_file_batch(owner, batch("vsfb_2"), [store_file()]),
    "store_file": lambda store, owner: store.store_file(owner, "vs_1", "file-1"),
    "store_files": lambda store, owner: store.store_files(owner, "vs_1", Paging()),
    "set_file_attributes": lambda store, owner: store.set_file_attributes(owner, "vs_1", "file-1", b"{}"),
    "file_batch": lambda store, owner: store.file_batch(owner, "vs_1", "vsfb_1"),
    "cancel_file_batch": lambda store, owner: store.cancel_file_batch(owner, "vs_1", "vsfb_1"),
    "stores_with": lambda store, owner: store.stores_with(owner, "file-1"),
    "remove_store_file": lambda store, owner: store.remove_store_file(owner, "vs_1", "file-1"),
    "delete_vector_store": lambda store, owner: store.delete_vector_store(owner, "vs_1"),
}
"""A call for each method that takes an owner. Made by the owner, it returns something."""

OF_NO_OWNER = {
    "all_store_files", "append_events", "end_store_file", "expire", "expire_approvals", "expire_containers",
    "expire_files", "expire_vector_stores", "expiring_store_files", "filenames", "has_expired", "read_again",
    "secret", "unfinished", "unread_file", "unread_files",
}  # fmt: skip
"""Called by the gateway itself, never with an id that a client sent."""

CREATES = {
    "add_container", "create_conversation", "create_file", "create_response", "create_skill", "create_upload",
    "create_vector_store", "use_approvals",
}  # fmt: skip
KEYS = {"add_key", "has_keys", "keys", "owner_of", "remove_key"}


async def fill(store: Store) -> None:
    """One of each, of the owner `us`."""
    await store.create_conversation(Conversation(id="conv_1", owner="us", created_at=1))
    await store.create_response(a_response(1, conversation="conv_1"))
    await store.append_events("resp_1", 0, [b"event"])
    await finish(store, 1)
    await store.create_response(a_response(2))
    await store.create_file(FileRecord(id="file-1", owner="us", created_at=1, filename="f", purpose="p"), content())
    await store.create_upload(
        Upload(id="upload_1", owner="us", created_at=1, filename="f", purpose="p", bytes=4, mime_type="", expires_at=9)
    )
    await store.add_part("us", UploadPart(id="part_1", upload="upload_1", created_at=1), content(), now=1)
    await store.add_container(ContainerRecord(id="cntr_1", owner="us", created_at=1, lane="resp_1"))
    await store.note_upload("us", "cntr_1", "a.csv")
    await store.create_skill("us", version(1), b"zip")
    await store.add_skill_version("us", version(2), b"zip", default=False)
    await store.create_vector_store(VectorStore(id="vs_1", owner="us", created_at=1, last_active_at=1), [])
    await store.add_file_batch("us", batch("vsfb_1"), [store_file()])


def test_every_method_is_looked_at() -> None:
    methods = {name for name, _ in inspect.getmembers(Store, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert methods - {"open", "aclose"} == CALLS.keys() | OF_NO_OWNER | CREATES | KEYS


@pytest.mark.parametrize("name", CALLS)
async def test_a_method_shows_and_changes_nothing_of_another_owner(store: Store, name: str) -> None:
    await fill(store)
    before = await everything(store)
    for stranger in ("them", "", "US", "%", "us "):
        answer = await CALLS[name](store, stranger)
        assert not answer or answer == Page(data=(), has_more=False, first_id=None, last_id=None)
    assert await everything(store) == before
    assert await CALLS[name](store, "us")


async def everything(store: Store) -> list[object]:
    """All that the owner sees."""
    return [
        await store.response("us", "resp_1"),
        await store.response("us", "resp_2"),
        await store.conversation("us", "conv_1"),
        await store.conversation_entries("us", "conv_1"),
        await store.files("us", Paging()),
        await store.upload("us", "upload_1"),
        await store.container("us", "cntr_1"),
        await store.uploads_in("us", "cntr_1"),
        await store.skill("us", "skill_1"),
        await store.skill_versions("us", "skill_1", Paging()),
        await store.vector_store("us", "vs_1"),
        await store.store_files("us", "vs_1", Paging()),
        await store.file_batch("us", "vs_1", "vsfb_1"),
    ]


async def test_a_response_does_not_continue_or_enter_what_belongs_to_another(store: Store) -> None:
    await fill(store)
    before = await everything(store)
    await store.create_response(a_response(7, owner="them", parent="resp_1", conversation="conv_1"))
    assert await finish(store, 7, "them")
    (alone,) = await store.chain("them", "resp_7")
    assert alone.parent is None
    assert await everything(store) == before
