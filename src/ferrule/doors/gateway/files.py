"""The routes of files."""

import re
import time
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ferrule.doors.gateway.forms import Form, blocks_of, form_of
from ferrule.doors.gateway.http import JsonAnswer, deleted, list_answer, owner_of, paging_of
from ferrule.doors.gateway.services import Services
from ferrule.model.calls import random_id
from ferrule.protocol.json_text import JsonValue
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.request import unfit
from ferrule.store import FileRecord
from ferrule.store.files import FILES_PAGE

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
HOUR_S = 3600
MONTH_S = 30 * 86_400
MAX_NAME = 512
"""Characters of a file's name that are kept: more than a file system takes."""


class ExpiresAfter(msgspec.Struct, frozen=True):
    """When a file expires: seconds after it was made. The API's longest life; its shortest is an hour."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, msgspec.Meta(ge=1, le=MONTH_S)]


async def create(services: Services, request: Request) -> Response:
    """`POST /files`."""
    most = services.settings.max_upload_bytes
    async with form_of(request, most) as form:
        file, now = form.file("file"), int(time.time())
        purpose = checked_purpose(form.text("purpose"))
        seconds = kept_seconds(purpose, _expires_after(form))
        record = FileRecord(
            id=new_file_id(),
            owner=owner_of(request),
            created_at=now,
            filename=name_to_show(file.filename or ""),
            purpose=purpose,
            expires_at=None if seconds is None else now + seconds,
        )
        return JsonAnswer(shown(await services.store.create_file(record, blocks_of(file), most)))


async def list_files(services: Services, request: Request) -> Response:
    """`GET /files`."""
    purpose = request.query_params.get("purpose") or None
    page = await services.store.files(owner_of(request), paging_of(request, limit=FILES_PAGE), purpose)
    return list_answer(msgspec.structs.replace(page, data=tuple(map(shown, page.data))))


async def retrieve(services: Services, request: Request) -> Response:
    """`GET /files/{id}`."""
    found = await services.store.file(owner_of(request), request.path_params["id"])
    if found is None:
        raise not_found("file", request.path_params["id"])
    return JsonAnswer(shown(found))


async def content(services: Services, request: Request) -> Response:
    """`GET /files/{id}/content`."""
    found = await services.store.content(owner_of(request), request.path_params["id"])
    if found is None:
        raise not_found("file", request.path_params["id"])
    headers = {
        "content-length": str(found.record.bytes),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(found.record.filename, safe='')}",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(aiter(found), headers=headers, media_type="application/octet-stream")


async def delete(services: Services, request: Request) -> Response:
    """`DELETE /files/{id}`. The file leaves its vector stores, too."""
    owner, file_id = owner_of(request), request.path_params["id"]
    places = [(store, file_id) for store in await services.store.stores_with(owner, file_id)]
    if not await services.store.delete_file(owner, file_id):
        raise not_found("file", file_id)
    await services.vectors.stores.forget(places)
    return deleted(file_id, "file")


def new_file_id() -> str:
    """Return the id of a new file."""
    return f"file-{random_id()}"


def shown(file: FileRecord) -> dict[str, JsonValue]:
    """Return a file as the API shows it."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": file.status,
    }


def checked_purpose(purpose: str | None) -> str:
    """Return what a file is for. Raises `ApiError` if nobody knows it."""
    if purpose not in PURPOSES:
        raise ApiError(f"purpose: {purpose!r} is none of {', '.join(PURPOSES)}", code="invalid_value", param="purpose")
    return purpose


def kept_seconds(purpose: str, expires: ExpiresAfter | None) -> int | None:
    """Return how long a file is kept, None for ever: as the client says, or the API's default for its purpose."""
    if expires is not None:
        return expires.seconds
    return MONTH_S if purpose == "batch" else None


def name_to_show(given: str) -> str:
    """Return a file's name without folders and control characters: it is shown, and never a path here."""
    last = re.split(r"[/\\]", given)[-1]
    name = "".join(char for char in last if char.isprintable())[:MAX_NAME]
    return "file" if name.strip() in ("", ".", "..") else name


def _expires_after(form: Form) -> ExpiresAfter | None:
    """Read the fields `expires_after[anchor]` and `expires_after[seconds]`. Raises `ApiError`."""
    given = form.object("expires_after")
    if given is None:
        return None
    try:
        return msgspec.convert(given, ExpiresAfter, strict=False)
    except msgspec.ValidationError as error:
        raise unfit(error, "expires_after") from error
