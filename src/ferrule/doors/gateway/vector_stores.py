"""The routes of vector stores."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ferrule.doors.gateway.http import JsonAnswer, body_of, deleted, list_answer, owner_of, paging_of
from ferrule.doors.gateway.services import Services
from ferrule.hosted.vector_stores import ClientStores, FileHit, RankingOptions, UnknownStore, search_of
from ferrule.model.calls import random_id
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.request import check_metadata, read
from ferrule.retrieval.filters import BadFilter
from ferrule.store import FileBatch, FileCounts, FileState, NewStoreFile, StoreFile, VectorStore

MAX_NAME = 256
MAX_DESCRIPTION = 2048
MAX_DAYS = 365
"""The API's."""
MOST_ATTRIBUTES = 16
MAX_KEY = 64
MAX_VALUE = 512
"""Of attributes; characters. The API's limits."""
MOST_FILES = 2000
"""Of one request, as the API says."""
LEAST_TOKENS, MOST_TOKENS = 100, 4096
"""Of a chunk, as the API says."""
AUTO = (800, 400)
"""The tokens of a chunk, and how many of them the next one repeats, where a client leaves it to us."""
USUAL_RESULTS = 10
MOST_QUERIES = 32
POLL_MS = "100"
"""How soon clients that wait for a file ask again: most files take less than a second."""
POLL_HEADER = "openai-poll-after-ms"

Metadata = dict[str, str]
Attribute = str | bool | int | float
Attributes = dict[str, Attribute]


class ExpiresAfter(msgspec.Struct, frozen=True):
    """When a store expires: days after its last use."""

    anchor: Literal["last_active_at"]
    days: Annotated[int, msgspec.Meta(ge=1, le=MAX_DAYS)]


class Auto(msgspec.Struct, frozen=True, tag="auto"):
    """Chunks as this server likes them."""


class StaticSizes(msgspec.Struct, frozen=True):
    """The sizes of chunks in tokens."""

    max_chunk_size_tokens: Annotated[int, msgspec.Meta(ge=LEAST_TOKENS, le=MOST_TOKENS)]
    chunk_overlap_tokens: Annotated[int, msgspec.Meta(ge=0)]

    def __post_init__(self) -> None:
        if self.chunk_overlap_tokens * 2 > self.max_chunk_size_tokens:
            raise ValueError("chunk_overlap_tokens is at most half of max_chunk_size_tokens")


class Static(msgspec.Struct, frozen=True, tag="static"):
    """Chunks of a size."""

    static: StaticSizes


Strategy = Auto | Static
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]


class _Create(msgspec.Struct, frozen=True):
    name: Name | None = None
    description: Annotated[str, msgspec.Meta(max_length=MAX_DESCRIPTION)] | None = None
    metadata: Metadata | None = None
    expires_after: ExpiresAfter | None = None
    file_ids: tuple[str, ...] | None = None
    chunking_strategy: Strategy | None = None


class _Update(msgspec.Struct, frozen=True):
    name: Name | msgspec.UnsetType | None = msgspec.UNSET
    metadata: Metadata | msgspec.UnsetType | None = msgspec.UNSET
    expires_after: ExpiresAfter | msgspec.UnsetType | None = msgspec.UNSET


class _AddFile(msgspec.Struct, frozen=True):
    file_id: str
    attributes: Attributes | None = None
    chunking_strategy: Strategy | None = None


class _Attributes(msgspec.Struct, frozen=True):
    attributes: Attributes | None


class _AddBatch(msgspec.Struct, frozen=True):
    file_ids: tuple[str, ...] | None = None
    files: tuple[_AddFile, ...] | None = None
    attributes: Attributes | None = None
    chunking_strategy: Strategy | None = None


class _Search(msgspec.Struct, frozen=True):
    query: str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=MOST_QUERIES)]
    max_num_results: Annotated[int, msgspec.Meta(ge=1, le=50)] | None = None
    filters: JsonValue = None
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = None


T = TypeVar("T")


async def _read(services: Services, request: Request, kind: type[T]) -> T:
    """Read a body. Raises `ApiError`, which names the strategy as a whole: what is wrong may be two of its fields."""
    try:
        return read(await body_of(request, services.settings.max_body_bytes), kind)
    except ApiError as error:
        if (error.param or "").startswith("chunking_strategy"):
            error.param = "chunking_strategy"
        raise


async def create(services: Services, request: Request) -> Response:
    """`POST /vector_stores`."""
    given = await _read(services, request, _Create)
    check_metadata(given.metadata)
    now = int(time.time())
    wanted = VectorStore(
        id=f"vs_{random_id()}",
        owner=owner_of(request),
        created_at=now,
        last_active_at=now,
        name=given.name or "",
        description=given.description,
        metadata=msgspec.json.encode(given.metadata or {}),
        expires_days=given.expires_after.days if given.expires_after else None,
    )
    added = _named(given.file_ids or (), {}, given.chunking_strategy)
    made, unread = await services.store.create_vector_store(wanted, added)
    services.vectors.ingestion.add(unread)
    return JsonAnswer(_shown(made, services.vectors.stores))


async def list_stores(services: Services, request: Request) -> Response:
    """`GET /vector_stores`."""
    page = await services.store.vector_stores(owner_of(request), paging_of(request))
    shown = tuple(_shown(one, services.vectors.stores) for one in page.data)
    return list_answer(msgspec.structs.replace(page, data=shown))


async def retrieve(services: Services, request: Request) -> Response:
    """`GET /vector_stores/{id}`."""
    found = await services.store.vector_store(owner_of(request), request.path_params["id"])
    if found is None:
        raise _no_store(request)
    return JsonAnswer(_shown(found, services.vectors.stores))


async def update(services: Services, request: Request) -> Response:
    """`POST /vector_stores/{id}`. Fields that are null are emptied, fields that are left out stay."""
    given = await _read(services, request, _Update)
    values: dict[str, object] = {"last_active_at": int(time.time())}
    if given.name is not msgspec.UNSET:
        values["name"] = given.name or ""
    if given.metadata is not msgspec.UNSET:
        check_metadata(given.metadata)
        values["metadata"] = msgspec.json.encode(given.metadata or {})
    if given.expires_after is not msgspec.UNSET:
        values["expires_days"] = given.expires_after.days if given.expires_after else None
    await _check_open(services, request)
    changed = await services.store.change_vector_store(owner_of(request), request.path_params["id"], values)
    if changed is None:
        raise _no_store(request)
    return JsonAnswer(_shown(changed, services.vectors.stores))


async def delete(services: Services, request: Request) -> Response:
    """`DELETE /vector_stores/{id}`."""
    store_id = request.path_params["id"]
    if not await services.store.delete_vector_store(owner_of(request), store_id):
        raise _no_store(request)
    await services.vectors.stores.indexes.remove(store_id)
    return deleted(store_id, "vector_store.deleted")


async def search(services: Services, request: Request) -> Response:
    """`POST /vector_stores/{id}/search`."""
    given = await _read(services, request, _Search)
    queries = (given.query,) if isinstance(given.query, str) else given.query
    try:
        wanted = search_of(queries, given.max_num_results or USUAL_RESULTS, given.filters, given.ranking_options)
    except BadFilter as error:
        raise ApiError(f"filters: {error}", code="invalid_value", param="filters") from error
    await _check_open(services, request)
    try:
        hits = await services.vectors.stores.search(owner_of(request), [request.path_params["id"]], wanted)
    except UnknownStore as error:
        raise _no_store(request) from error
    answer = {"object": "vector_store.search_results.page", "search_query": list(queries)}
    return JsonAnswer({**answer, "data": [_hit(hit) for hit in hits], "has_more": False, "next_page": None})


async def add_file(services: Services, request: Request) -> Response:
    """`POST /vector_stores/{id}/files`."""
    given = await _read(services, request, _AddFile)
    added = [_new(given, "file_id", "attributes")]
    await _check_open(services, request)
    owner, store_id = owner_of(request), request.path_params["id"]
    unread = await services.store.add_store_files(owner, store_id, added, int(time.time()))
    services.vectors.ingestion.add(unread)
    return await _file_answer(services, request, given.file_id)


async def list_files(services: Services, request: Request) -> Response:
    """`GET /vector_stores/{id}/files`, and those of a batch."""
    page = await services.store.store_files(
        owner_of(request),
        request.path_params["id"],
        paging_of(request),
        status=_filter_of(request),
        batch=request.path_params.get("batch"),
    )
    if page is None:
        raise _no_store(request) if "batch" not in request.path_params else _no_batch(request)
    return list_answer(msgspec.structs.replace(page, data=tuple(map(_shown_file, page.data))))


async def retrieve_file(services: Services, request: Request) -> Response:
    """`GET /vector_stores/{id}/files/{file}`."""
    return await _file_answer(services, request, request.path_params["file"])


async def update_file(services: Services, request: Request) -> Response:
    """`POST /vector_stores/{id}/files/{file}`."""
    given = await _read(services, request, _Attributes)
    attributes = _checked(given.attributes, "attributes")
    store_id, file_id = request.path_params["id"], request.path_params["file"]
    if not await services.store.set_file_attributes(owner_of(request), store_id, file_id, attributes):
        raise _no_file(request)
    await services.vectors.stores.set_attributes(store_id, file_id, attributes)
    return await _file_answer(services, request, file_id)


async def delete_file(services: Services, request: Request) -> Response:
    """`DELETE /vector_stores/{id}/files/{file}`. The file itself stays."""
    store_id, file_id = request.path_params["id"], request.path_params["file"]
    if not await services.store.remove_store_file(owner_of(request), store_id, file_id):
        raise _no_file(request)
    await services.vectors.stores.forget([(store_id, file_id)])
    return deleted(file_id, "vector_store.file.deleted")


async def file_content(services: Services, request: Request) -> Response:
    """`GET /vector_stores/{id}/files/{file}/content`: what was read, chunk by chunk."""
    store_id, file_id = request.path_params["id"], request.path_params["file"]
    found = await services.store.store_file(owner_of(request), store_id, file_id)
    if found is None:
        raise _no_file(request)
    texts = await services.vectors.stores.chunks_of(store_id, file_id) if found.status == "completed" else []
    data = [{"type": "text", "text": text} for text in texts]
    page = {"object": "vector_store.file_content.page", "data": data, "has_more": False, "next_page": None}
    return JsonAnswer(page)


async def create_batch(services: Services, request: Request) -> Response:
    """`POST /vector_stores/{id}/file_batches`."""
    given = await _read(services, request, _AddBatch)
    if (given.file_ids is None) is (given.files is None):
        raise ApiError("Give file_ids or files, and not both.", code="invalid_value", param="file_ids")
    added = (
        _named(given.file_ids, given.attributes, given.chunking_strategy)
        if given.file_ids is not None
        else [_new(one, f"files[{at}].file_id", f"files[{at}].attributes") for at, one in enumerate(given.files or ())]
    )
    if not 1 <= len(added) <= MOST_FILES:
        param = "files" if given.file_ids is None else "file_ids"
        text = f"{param}: a batch has 1 to {MOST_FILES} files, not {len(added)}"
        raise ApiError(text, code="invalid_value", param=param)
    await _check_open(services, request)
    batch = FileBatch(id=f"vsfb_{random_id()}", store=request.path_params["id"], created_at=int(time.time()))
    made = await services.store.add_file_batch(owner_of(request), batch, added)
    if made is None:
        raise _no_store(request)
    services.vectors.ingestion.add(made[1])
    return _batch_answer(made[0])


async def retrieve_batch(services: Services, request: Request) -> Response:
    """`GET /vector_stores/{id}/file_batches/{batch}`."""
    found = await services.store.file_batch(owner_of(request), *_path(request, "id", "batch"))
    if found is None:
        raise _no_batch(request)
    return _batch_answer(found)


async def cancel_batch(services: Services, request: Request) -> Response:
    """`POST /vector_stores/{id}/file_batches/{batch}/cancel`. What has been read stays."""
    found = await services.store.cancel_file_batch(owner_of(request), *_path(request, "id", "batch"))
    if found is None:
        raise _no_batch(request)
    return _batch_answer(found)


async def _check_open(services: Services, request: Request) -> None:
    """Raise `ApiError` for a store that is not there, or has expired."""
    found = await services.store.vector_store(owner_of(request), request.path_params["id"])
    if found is None:
        raise _no_store(request)
    if found.expired:
        text = f"The vector store {found.id!r} has expired: make another one."
        raise ApiError(text, code="vector_store_expired", param="vector_store_id")


async def _file_answer(services: Services, request: Request, file_id: str) -> Response:
    found = await services.store.store_file(owner_of(request), request.path_params["id"], file_id)
    if found is None:
        raise _no_file(request, file_id)
    return JsonAnswer(_shown_file(found), headers=_poll(found.status))


def _path(request: Request, *names: str) -> list[str]:
    return [request.path_params[name] for name in names]


def _no_store(request: Request) -> ApiError:
    return not_found("vector store", request.path_params["id"], "vector_store_id")


def _no_file(request: Request, file_id: str | None = None) -> ApiError:
    return not_found("file in this vector store", file_id or request.path_params["file"], "file_id")


def _no_batch(request: Request) -> ApiError:
    return not_found("batch in this vector store", request.path_params["batch"], "batch_id")


def _poll(status: str) -> dict[str, str]:
    return {POLL_HEADER: POLL_MS} if status == "in_progress" else {}


def _filter_of(request: Request) -> FileState | None:
    """Return the state that listed files have. Raises `ApiError`."""
    given = request.query_params.get("filter") or None
    for state in get_args(FileState):
        if given == state:
            return state  # type: ignore[no-any-return]
    if given is not None:
        text = f"filter: {given!r} is none of {', '.join(get_args(FileState))}"
        raise ApiError(text, code="invalid_value", param="filter")
    return None


def _named(
    file_ids: Sequence[str], attributes: Mapping[str, Attribute] | None, strategy: Strategy | None
) -> list[NewStoreFile]:
    """Return files that are all added in the same way. Raises `ApiError`."""
    if len(file_ids) > MOST_FILES:
        text = f"file_ids: at most {MOST_FILES} files at once, not {len(file_ids)}"
        raise ApiError(text, code="invalid_value", param="file_ids")
    encoded = _checked(attributes, "attributes")
    most, overlap = _tokens(strategy)
    return [
        NewStoreFile(file=file_id, param=f"file_ids[{at}]", attributes=encoded, max_tokens=most, overlap_tokens=overlap)
        for at, file_id in enumerate(file_ids)
    ]


def _new(given: _AddFile, param: str, of_attributes: str) -> NewStoreFile:
    most, overlap = _tokens(given.chunking_strategy)
    encoded = _checked(given.attributes, of_attributes)
    return NewStoreFile(file=given.file_id, param=param, attributes=encoded, max_tokens=most, overlap_tokens=overlap)


def _tokens(strategy: Strategy | None) -> tuple[int, int]:
    if isinstance(strategy, Static):
        return strategy.static.max_chunk_size_tokens, strategy.static.chunk_overlap_tokens
    return AUTO


def _checked(attributes: Mapping[str, Attribute] | None, param: str) -> bytes:
    """Return attributes as JSON. Raises `ApiError`."""
    attributes = attributes or {}
    if len(attributes) > MOST_ATTRIBUTES:
        raise _bad_attributes(f"at most {MOST_ATTRIBUTES} attributes, not {len(attributes)}", param)
    for key, value in attributes.items():
        if len(key) > MAX_KEY:
            raise _bad_attributes(f"a key has at most {MAX_KEY} characters, not {len(key)}", param)
        if isinstance(value, str) and len(value) > MAX_VALUE:
            raise _bad_attributes(f"a value has at most {MAX_VALUE} characters, not {len(value)}", param)
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise _bad_attributes(f"a number is at most {sys.float_info.max:.1e}", param)
    return msgspec.json.encode(attributes)


def _bad_attributes(text: str, param: str) -> ApiError:
    return ApiError(f"{param}: {text}", code="invalid_value", param=param)


def _shown(store: VectorStore, stores: ClientStores) -> JsonObject:
    """Return a store as the API shows it, and how its files are found."""
    status = "expired" if store.expired else "in_progress" if store.counts.in_progress else "completed"
    days = store.expires_days
    return {
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created_at,
        "name": store.name,
        "description": store.description,
        "usage_bytes": store.usage_bytes,
        "file_counts": _counts(store.counts),
        "status": status,
        "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
        "expires_at": store.expires_at,
        "last_active_at": store.last_active_at,
        "metadata": msgspec.json.decode(store.metadata),
        "search_mode": stores.mode,
        "search_mode_reason": stores.reason,
    }


def _counts(counts: FileCounts) -> JsonObject:
    return {**msgspec.structs.asdict(counts), "total": counts.total}


def _shown_file(file: StoreFile) -> JsonObject:
    """Return a file of a store as the API shows it."""
    sizes = {"max_chunk_size_tokens": file.max_tokens, "chunk_overlap_tokens": file.overlap_tokens}
    return {
        "id": file.id,
        "object": "vector_store.file",
        "created_at": file.created_at,
        "usage_bytes": file.usage_bytes,
        "vector_store_id": file.store,
        "status": file.status,
        "last_error": None if file.error_code is None else {"code": file.error_code, "message": file.error},
        "attributes": msgspec.json.decode(file.attributes),
        "chunking_strategy": {"type": "static", "static": sizes},
    }


def _batch_answer(batch: FileBatch) -> Response:
    status = "cancelled" if batch.cancelled else "in_progress" if batch.counts.in_progress else "completed"
    shown = {
        "id": batch.id,
        "object": "vector_store.files_batch",
        "created_at": batch.created_at,
        "vector_store_id": batch.store,
        "status": status,
        "file_counts": _counts(batch.counts),
    }
    return JsonAnswer(shown, headers=_poll(status))


def _hit(hit: FileHit) -> JsonObject:
    return {
        "file_id": hit.file,
        "filename": hit.filename,
        "score": hit.score,
        "attributes": dict(hit.attributes),
        "content": [{"type": "text", "text": hit.text}],
    }
