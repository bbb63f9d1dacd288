"""The routes of conversations."""

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ferrule.doors.gateway.http import JsonAnswer, body_of, deleted, list_answer, owner_of, paging_of
from ferrule.doors.gateway.services import Services
from ferrule.model.calls import random_id
from ferrule.protocol.json_text import JsonValue
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.request import check_metadata, read
from ferrule.responses.transcript import read_input
from ferrule.store import Conversation, Page

MAX_ITEMS = 20
"""Items that are added at once; the API's limit."""


class _Create(msgspec.Struct):
    metadata: dict[str, str] | None = None
    items: tuple[msgspec.Raw, ...] | None = None


class _Update(msgspec.Struct):
    metadata: dict[str, str]


class _Add(msgspec.Struct):
    items: tuple[msgspec.Raw, ...]


async def create(services: Services, request: Request) -> Response:
    """`POST /conversations`. The body may be left out."""
    given = read(await body_of(request, services.settings.max_body_bytes) or b"{}", _Create)
    check_metadata(given.metadata)
    items = await _read_items(services, given.items or (), owner_of(request))
    made = Conversation(
        id=f"conv_{random_id()}{random_id()}",
        owner=owner_of(request),
        created_at=int(time.time()),
        metadata=msgspec.json.encode(given.metadata or {}),
    )
    await services.store.create_conversation(made)
    if items:
        await services.store.add_items(made.owner, made.id, items)
    return JsonAnswer(_shown(made))


async def retrieve(services: Services, request: Request) -> Response:
    """`GET /conversations/{id}`."""
    return JsonAnswer(_shown(await _found(services, request)))


async def update(services: Services, request: Request) -> Response:
    """`POST /conversations/{id}`: replace its metadata."""
    given = read(await body_of(request, services.settings.max_body_bytes), _Update)
    check_metadata(given.metadata)
    found = await services.store.update_conversation(
        owner_of(request), request.path_params["id"], msgspec.json.encode(given.metadata)
    )
    if found is None:
        raise not_found("conversation", request.path_params["id"])
    return JsonAnswer(_shown(found))


async def delete(services: Services, request: Request) -> Response:
    """`DELETE /conversations/{id}`. The responses that were made in it stay."""
    conversation_id: str = request.path_params["id"]
    if not await services.store.delete_conversation(owner_of(request), conversation_id):
        raise not_found("conversation", conversation_id)
    return deleted(conversation_id, "conversation.deleted")


async def items(services: Services, request: Request) -> Response:
    """`GET /conversations/{id}/items`."""
    page = await services.store.items(owner_of(request), request.path_params["id"], paging_of(request))
    if page is None:
        raise not_found("conversation", request.path_params["id"])
    return list_answer(page)


async def add_items(services: Services, request: Request) -> Response:
    """`POST /conversations/{id}/items`."""
    given = read(await body_of(request, services.settings.max_body_bytes), _Add)
    added = await _read_items(services, given.items, owner_of(request))
    if not await services.store.add_items(owner_of(request), request.path_params["id"], added):
        raise not_found("conversation", request.path_params["id"])
    ids = [msgspec.json.decode(item)["id"] for item in added]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return list_answer(Page(data=added, has_more=False, first_id=first, last_id=last))


async def item(services: Services, request: Request) -> Response:
    """`GET /conversations/{id}/items/{item}`."""
    await _found(services, request)
    item_id: str = request.path_params["item"]
    found = await services.store.conversation_item(owner_of(request), request.path_params["id"], item_id)
    if found is None:
        raise not_found("item", item_id)
    return JsonAnswer(msgspec.Raw(found))


async def delete_item(services: Services, request: Request) -> Response:
    """`DELETE /conversations/{id}/items/{item}`. Returns the conversation."""
    conversation = await _found(services, request)
    item_id: str = request.path_params["item"]
    if not await services.store.delete_item(conversation.owner, conversation.id, item_id):
        raise not_found("item", item_id)
    return JsonAnswer(_shown(conversation))


async def _found(services: Services, request: Request) -> Conversation:
    found = await services.store.conversation(owner_of(request), request.path_params["id"])
    if found is None:
        raise not_found("conversation", request.path_params["id"])
    return found


async def _read_items(services: Services, given: tuple[msgspec.Raw, ...], owner: str) -> tuple[bytes, ...]:
    """Return items as JSON, each with an id. Raises `ApiError`."""
    if len(given) > MAX_ITEMS:
        raise ApiError(f"items: at most {MAX_ITEMS} at once, not {len(given)}", code="invalid_value", param="items")
    return await services.engine.items(read_input(given, "items"), owner)


def _shown(conversation: Conversation) -> dict[str, JsonValue]:
    metadata: JsonValue = msgspec.json.decode(conversation.metadata)
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": metadata,
    }
