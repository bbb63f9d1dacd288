"""The routes of containers and of their files."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ferrule.containers import ContainerError, ContainerExpired, UnknownContainer
from ferrule.containers.data import DataFile, FolderClosed, NoFile, open_file, remove_file
from ferrule.doors.gateway.forms import BLOCK, FORM, blocks_of, form_of
from ferrule.doors.gateway.http import JsonAnswer, body_of, deleted, list_answer, not_run, owner_of, paging_of
from ferrule.doors.gateway.services import Services
from ferrule.hosted.containers import ClientContainer, ClientContainers, State, UnknownFile
from ferrule.hosted.network import PolicyRefused
from ferrule.hosted.skills import SkillParam
from ferrule.hosted.tool import ToolRefused
from ferrule.hosted.wanted import DEFAULT_MEMORY, MemoryLimit, Wanted, capped_memory, details_of
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.specs import NetworkAllowlist, NetworkPolicy
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.failures import tool_refusal
from ferrule.responses.request import read
from ferrule.sandbox.linux.root import DATA
from ferrule.store import ContainerRecord
from ferrule.store.paging import page_of

MAX_MINUTES = 20
"""Minutes without use after which a container ends, at most: the API's limit."""


SECRET = ("domain_secrets",)
"""Fields that are never shown."""


class ExpiresAfter(msgspec.Struct, frozen=True):
    """When a container ends."""

    anchor: Literal["last_active_at"]
    minutes: Annotated[int, msgspec.Meta(ge=1, le=MAX_MINUTES)]


class _Create(msgspec.Struct, frozen=True):
    name: str
    file_ids: tuple[str, ...] = ()
    memory_limit: MemoryLimit | None = None
    expires_after: ExpiresAfter | None = None
    network_policy: NetworkPolicy | None = None
    skills: tuple[SkillParam, ...] = ()


class _FileById(msgspec.Struct, frozen=True):
    file_id: str


async def create(services: Services, request: Request) -> Response:
    """`POST /containers`."""
    body = await body_of(request, services.settings.max_body_bytes)
    asked, others = read(body, _Create), _others(read(body, dict[str, JsonValue]))
    owner, containers = owner_of(request), _containers(services)
    try:
        found = await containers.skills.find(owner, asked.skills, "skills")
    except ToolRefused as error:
        raise tool_refusal(error, error.param) from error
    wanted = Wanted(
        file_ids=asked.file_ids,
        memory_limit=asked.memory_limit or DEFAULT_MEMORY,
        minutes=None if asked.expires_after is None else asked.expires_after.minutes,
        network=asked.network_policy,
        others={name: value for name, value in others.items() if name not in SECRET},
    )
    try:
        made = await containers.create(owner, wanted, name=asked.name, skills=found)
    except UnknownFile as error:
        raise ApiError(f"file_ids: {error}", status=404, code="not_found", param="file_ids") from error
    except ToolRefused as error:
        raise tool_refusal(error, error.param) from error
    except PolicyRefused as error:
        raise ApiError(str(error), code="invalid_value", param=error.param) from error
    except ContainerError as error:
        raise _unavailable(error) from error
    (shown,) = await _shown(services, made.record)
    return JsonAnswer(shown, headers=not_run(sorted(others)))


async def list_containers(services: Services, request: Request) -> Response:
    """`GET /containers`."""
    name = request.query_params.get("name") or None
    page = await services.store.containers(owner_of(request), paging_of(request), name)
    return list_answer(msgspec.structs.replace(page, data=tuple(await _shown(services, *page.data))))


async def retrieve(services: Services, request: Request) -> Response:
    """`GET /containers/{id}`."""
    (shown,) = await _shown(services, await _record(services, request))
    return JsonAnswer(shown)


async def delete(services: Services, request: Request) -> Response:
    """`DELETE /containers/{id}`."""
    record = await _record(services, request)
    try:
        await _containers(services).remove(record)
    except ContainerError as error:
        raise _unavailable(error) from error
    return deleted(record.id, "container.deleted")


async def add_file(services: Services, request: Request) -> Response:
    """`POST /containers/{id}/files`: a form with a file, or JSON with a `file_id`."""
    place = await _place(services, request)
    containers = _containers(services)
    try:
        if request.headers.get("content-type", "").lower().startswith(FORM):
            async with form_of(request, services.settings.max_upload_bytes) as form:
                file = form.file("file")
                path = await containers.put(place, file.filename or "file", blocks_of(file))
        else:
            asked = read(await body_of(request, services.settings.max_body_bytes), _FileById)
            path = await containers.bring(place, asked.file_id)
    except UnknownFile as error:
        raise not_found("file", asked.file_id) from error
    except FolderClosed as error:
        raise _closed() from error
    except NoFile as error:
        raise ApiError("file: it needs a name that a file can have", code="invalid_value", param="file") from error
    try:
        found = await place.files.at(path)
    except NoFile as error:
        raise ApiError(f"The container has removed the file {path!r}.", status=409, code="conflict") from error
    except FolderClosed as error:
        raise _closed() from error
    return JsonAnswer(_file_shown(place, found, is_uploaded=True))


async def files(services: Services, request: Request) -> Response:
    """`GET /containers/{id}/files`."""
    place = await _place(services, request)
    uploaded = await services.store.uploads_in(owner_of(request), place.id)
    try:
        found = await place.files.all()
    except FolderClosed as error:
        raise _closed() from error
    entries = [_file_shown(place, one, is_uploaded=one.path in uploaded) for one in found]
    return list_answer(page_of(entries, paging_of(request), lambda entry: str(entry["id"])))


async def file(services: Services, request: Request) -> Response:
    """`GET /containers/{id}/files/{file}`."""
    place = await _place(services, request)
    with _asked(request):
        found = await place.files.of_id(request.path_params["file"])
    uploaded = await services.store.uploads_in(owner_of(request), place.id)
    return JsonAnswer(_file_shown(place, found, is_uploaded=found.path in uploaded))


async def content(services: Services, request: Request) -> Response:
    """`GET /containers/{id}/files/{file}/content`."""
    place = await _place(services, request)
    with _asked(request):
        found = await place.files.of_id(request.path_params["file"])
        fd = await asyncio.to_thread(open_file, place.box.folder, found.path)
    headers = {"x-content-type-options": "nosniff"}
    return StreamingResponse(
        _blocks(os.fdopen(fd, "rb", buffering=0)), headers=headers, media_type="application/octet-stream"
    )


async def delete_file(services: Services, request: Request) -> Response:
    """`DELETE /containers/{id}/files/{file}`."""
    place = await _place(services, request)
    with _asked(request):
        found = await place.files.of_id(request.path_params["file"])
        await asyncio.to_thread(remove_file, place.box.folder, found.path)
    return deleted(request.path_params["file"], "container.file.deleted")


def _others(given: JsonObject) -> JsonObject:
    """Return the fields that nobody knows here."""
    return {name: value for name, value in given.items() if name not in _Create.__struct_fields__}


def _containers(services: Services) -> ClientContainers:
    if services.containers is None:
        raise ApiError("This server runs no containers: they need Linux.", status=501, code="not_supported")
    return services.containers


async def _record(services: Services, request: Request) -> ContainerRecord:
    record = await services.store.container(owner_of(request), request.path_params["id"])
    if record is None:
        raise not_found("container", request.path_params["id"])
    return record


async def _place(services: Services, request: Request) -> ClientContainer:
    container_id = request.path_params["id"]
    try:
        place = await _containers(services).get(owner_of(request), container_id)
    except ContainerExpired as error:
        raise ApiError(str(error), status=404, code="container_expired") from error
    except UnknownContainer as error:
        raise not_found("container", container_id) from error
    except ContainerError as error:
        raise _unavailable(error) from error
    place.box.touch()
    return place


def _unavailable(error: ContainerError) -> ApiError:
    return ApiError(str(error), status=503, kind="server_error", code="container_unavailable")


async def _shown(services: Services, *records: ContainerRecord) -> list[JsonObject]:
    """Return containers as the API shows them."""
    states = await _containers(services).states(records)
    return [_container_shown(record, state) for record, state in zip(records, states, strict=True)]


def _container_shown(record: ContainerRecord, state: State) -> JsonObject:
    wanted = details_of(record)
    capped = capped_memory(wanted.memory_limit)
    return wanted.others | {
        "id": record.id,
        "object": "container",
        "created_at": record.created_at,
        "status": state.status,
        "name": record.name,
        "last_active_at": state.last_active_at,
        "expires_after": {"anchor": "last_active_at", "minutes": state.minutes},
        "memory_limit": wanted.memory_limit,
        **({} if capped is None else {"memory_bytes": capped}),
        "network_policy": _policy_shown(wanted.network),
    }


def _policy_shown(policy: NetworkPolicy | None) -> JsonObject:
    """Return a network policy as the API shows it: without secrets."""
    if isinstance(policy, NetworkAllowlist):
        return {"type": "allowlist", "allowed_domains": [*policy.allowed_domains]}
    return {"type": "disabled"}


def _closed() -> ApiError:
    return ApiError(f"The container has closed {DATA} to everybody else: open it there.", status=409, code="conflict")


@contextmanager
def _asked(request: Request) -> Iterator[None]:
    """Say why the file that a request names cannot be had."""
    try:
        yield
    except NoFile as error:
        raise not_found("file", request.path_params["file"]) from error
    except FolderClosed as error:
        raise _closed() from error


def _file_shown(place: ClientContainer, found: DataFile, *, is_uploaded: bool) -> JsonObject:
    return {
        "id": place.files.id_of(found.path),
        "object": "container.file",
        "container_id": place.id,
        "created_at": int(found.changed_at),
        "bytes": found.bytes,
        "path": f"{DATA}/{found.shown}",
        "source": "user" if is_uploaded else "assistant",
    }


async def _blocks(source: FileIO) -> AsyncIterator[bytes]:
    with source:
        while block := await asyncio.to_thread(source.read, BLOCK):
            yield block
