"""The routes of uploads: files that come in parts."""

import time
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ferrule.doors.gateway.files import (
    HOUR_S,
    ExpiresAfter,
    checked_purpose,
    kept_seconds,
    name_to_show,
    new_file_id,
    shown,
)
from ferrule.doors.gateway.forms import blocks_of, form_of
from ferrule.doors.gateway.http import JsonAnswer, body_of, owner_of
from ferrule.doors.gateway.services import Services
from ferrule.model.calls import random_id
from ferrule.protocol.json_text import JsonValue
from ferrule.responses.errors import not_found
from ferrule.responses.request import read
from ferrule.store import FileRecord, Upload, UploadPart
from ferrule.store.files import MAX_PART_BYTES

MAX_MIME = 255
"""Characters of a MIME type: twice the 127 that RFC 6838 allows a name, and the slash."""


class _Create(msgspec.Struct):
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    filename: str
    mime_type: Annotated[str, msgspec.Meta(max_length=MAX_MIME)]
    purpose: str
    expires_after: ExpiresAfter | None = None


class _Complete(msgspec.Struct):
    part_ids: tuple[str, ...]
    md5: str | None = None


async def create(services: Services, request: Request) -> Response:
    """`POST /uploads`. An upload lasts one hour; `expires_after` counts from when its file is made."""
    given = read(await body_of(request, services.settings.max_body_bytes), _Create)
    purpose, now = checked_purpose(given.purpose), int(time.time())
    made = Upload(
        id=f"upload_{random_id()}",
        owner=owner_of(request),
        created_at=now,
        filename=name_to_show(given.filename),
        purpose=purpose,
        bytes=given.bytes,
        mime_type=given.mime_type,
        expires_at=now + HOUR_S,
        kept_seconds=kept_seconds(purpose, given.expires_after),
    )
    await services.store.create_upload(made)
    return JsonAnswer(_shown(made))


async def add_part(services: Services, request: Request) -> Response:
    """`POST /uploads/{id}/parts`."""
    upload_id, now = request.path_params["id"], int(time.time())
    most = min(MAX_PART_BYTES, services.settings.max_upload_bytes)
    async with form_of(request, most) as form:
        part = UploadPart(id=f"part_{random_id()}", upload=upload_id, created_at=now)
        added = await services.store.add_part(owner_of(request), part, blocks_of(form.file("data")), now=now)
    if added is None:
        raise not_found("upload", upload_id)
    return JsonAnswer(
        {"id": added.id, "object": "upload.part", "created_at": added.created_at, "upload_id": added.upload}
    )


async def complete(services: Services, request: Request) -> Response:
    """`POST /uploads/{id}/complete`."""
    given = read(await body_of(request, services.settings.max_body_bytes), _Complete)
    made = await services.store.complete_upload(
        owner_of(request),
        request.path_params["id"],
        given.part_ids,
        file_id=new_file_id(),
        now=int(time.time()),
        md5=given.md5,
    )
    if made is None:
        raise not_found("upload", request.path_params["id"])
    return JsonAnswer(_shown(*made))


async def cancel(services: Services, request: Request) -> Response:
    """`POST /uploads/{id}/cancel`."""
    cancelled = await services.store.cancel_upload(owner_of(request), request.path_params["id"])
    if cancelled is None:
        raise not_found("upload", request.path_params["id"])
    return JsonAnswer(_shown(cancelled))


def _shown(upload: Upload, file: FileRecord | None = None) -> dict[str, JsonValue]:
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.bytes,
        "created_at": upload.created_at,
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": upload.status,
        "expires_at": upload.expires_at,
        "file": None if file is None else shown(file),
    }
