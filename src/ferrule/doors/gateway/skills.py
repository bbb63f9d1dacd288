"""The routes of skills and of their versions."""

import time
from contextlib import AbstractAsyncContextManager
from typing import Annotated
from urllib.parse import quote

import msgspec
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ferrule.doors.gateway.forms import Form, form_of
from ferrule.doors.gateway.http import JsonAnswer, body_of, deleted, list_answer, owner_of, paging_of
from ferrule.doors.gateway.services import Services
from ferrule.hosted.bundles import MOST_BYTES, MOST_FILES, BadBundle, Bundle, BundleFile, bundle_of, zip_of
from ferrule.hosted.skills import ClientSkills, which_of
from ferrule.hosted.tool import ToolRefused
from ferrule.model.calls import random_id
from ferrule.protocol.json_text import JsonObject
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.failures import tool_refusal
from ferrule.responses.request import read
from ferrule.store import Skill, SkillVersion, Which

FILES = "files"
MAX_FORM_BYTES = 2 * MOST_BYTES
"""Bytes of a form: more than any skill has, so that one which is too large is told so."""
ZIP = b"PK"
"""How a zip begins, whatever its name."""


class _Update(msgspec.Struct, frozen=True):
    default_version: Annotated[str, msgspec.Meta(min_length=1)]


async def create(services: Services, request: Request) -> Response:
    """`POST /skills`."""
    async with _form(request) as form:
        bundle, packed = await _sent(services.skills, form)
    version = _version(f"skill_{random_id()}", bundle)
    return JsonAnswer(_shown(await services.store.create_skill(owner_of(request), version, packed)))


async def list_skills(services: Services, request: Request) -> Response:
    """`GET /skills`."""
    page = await services.store.skills(owner_of(request), paging_of(request))
    return list_answer(msgspec.structs.replace(page, data=tuple(map(_shown, page.data))))


async def retrieve(services: Services, request: Request) -> Response:
    """`GET /skills/{id}`."""
    return JsonAnswer(_shown(await _skill(services, request)))


async def update(services: Services, request: Request) -> Response:
    """`POST /skills/{id}`: another default version."""
    skill = await _skill(services, request)
    given = read(await body_of(request, services.settings.max_body_bytes), _Update)
    try:
        which = which_of(given.default_version)
    except ToolRefused as error:
        raise tool_refusal(error, "default_version") from error
    version = await services.store.skill_version(owner_of(request), skill.id, which)
    if version is None:
        raise _no_version(skill.id, given.default_version, "default_version")
    updated = await services.store.set_default_version(owner_of(request), skill.id, version.version)
    if updated is None:
        raise not_found("skill", skill.id)
    return JsonAnswer(_shown(updated))


async def delete(services: Services, request: Request) -> Response:
    """`DELETE /skills/{id}`."""
    if not await services.store.delete_skill(owner_of(request), request.path_params["id"]):
        raise not_found("skill", request.path_params["id"])
    return deleted(request.path_params["id"], "skill.deleted")


async def content(services: Services, request: Request) -> Response:
    """`GET /skills/{id}/content`: the zip of the default version."""
    return await _content(services, request, None)


async def create_version(services: Services, request: Request) -> Response:
    """`POST /skills/{id}/versions`."""
    skill = await _skill(services, request)
    async with _form(request) as form:
        default = _flag(form, "default")
        bundle, packed = await _sent(services.skills, form)
    version = _version(skill.id, bundle)
    made = await services.store.add_skill_version(owner_of(request), version, packed, default=default)
    if made is None:
        raise not_found("skill", skill.id)
    return JsonAnswer(_version_shown(made))


async def list_versions(services: Services, request: Request) -> Response:
    """`GET /skills/{id}/versions`."""
    skill_id = request.path_params["id"]
    page = await services.store.skill_versions(owner_of(request), skill_id, paging_of(request))
    if page is None:
        raise not_found("skill", skill_id)
    return list_answer(msgspec.structs.replace(page, data=tuple(map(_version_shown, page.data))))


async def retrieve_version(services: Services, request: Request) -> Response:
    """`GET /skills/{id}/versions/{version}`."""
    return JsonAnswer(_version_shown(await _found_version(services, request)))


async def delete_version(services: Services, request: Request) -> Response:
    """`DELETE /skills/{id}/versions/{version}`."""
    found = await _found_version(services, request)
    gone = await services.store.delete_skill_version(owner_of(request), found.skill, found.version)
    if gone is None:
        raise _no_version(found.skill, str(found.version))
    shown: JsonObject = {
        "id": gone.id,
        "object": "skill.version.deleted",
        "deleted": True,
        "version": str(gone.version),
    }
    return JsonAnswer(shown)


async def version_content(services: Services, request: Request) -> Response:
    """`GET /skills/{id}/versions/{version}/content`."""
    found = await _found_version(services, request)
    return await _content(services, request, found.version)


async def _content(services: Services, request: Request, which: Which) -> Response:
    skill_id = request.path_params["id"]
    found = await services.store.skill_content(owner_of(request), skill_id, which)
    if found is None:
        raise not_found("skill", skill_id)
    headers = {
        "content-length": str(found.record.bytes),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(found.record.filename, safe='')}",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(aiter(found), headers=headers, media_type="application/zip")


async def _skill(services: Services, request: Request) -> Skill:
    found = await services.store.skill(owner_of(request), request.path_params["id"])
    if found is None:
        raise not_found("skill", request.path_params["id"])
    return found


async def _found_version(services: Services, request: Request) -> SkillVersion:
    skill_id, named = request.path_params["id"], request.path_params["version"]
    await _skill(services, request)
    try:
        which = which_of(named)
    except ToolRefused as error:
        raise _no_version(skill_id, named) from error
    found = await services.store.skill_version(owner_of(request), skill_id, which)
    if found is None:
        raise _no_version(skill_id, named)
    return found


def _no_version(skill_id: str, version: str, param: str = "version") -> ApiError:
    text = f"The skill {skill_id!r} has no version {version!r}."
    return ApiError(text, status=404, code="not_found", param=param)


def _form(request: Request) -> AbstractAsyncContextManager[Form]:
    return form_of(request, MAX_FORM_BYTES, files=MOST_FILES, param=FILES)


async def _sent(skills: ClientSkills, form: Form) -> tuple[Bundle, bytes]:
    """Return the skill that a form holds, and its zip. Raises `ApiError`."""
    sent = form.files(FILES)
    try:
        if len(sent) == 1 and (packed := await _packed(sent[0])) is not None:
            return await skills.read(packed), packed
        files = [BundleFile(one.filename or "", await one.read()) for one in sent]
        return bundle_of(files), zip_of(files)
    except BadBundle as error:
        raise ApiError(f"{FILES}: {error}", code="invalid_value", param=FILES) from error


async def _packed(file: UploadFile) -> bytes | None:
    """Return a zip that was sent; None if it is another file."""
    data = await file.read()
    if data.startswith(ZIP) or (file.filename or "").lower().endswith(".zip"):
        return data
    await file.seek(0)
    return None


def _flag(form: Form, name: str) -> bool:
    given = (form.text(name) or "false").lower()
    if given not in ("true", "false"):
        raise ApiError(f"{name}: {given!r} is neither true nor false", code="invalid_value", param=name)
    return given == "true"


def _version(skill_id: str, bundle: Bundle) -> SkillVersion:
    return SkillVersion(
        id=f"skillver_{random_id()}",
        skill=skill_id,
        created_at=int(time.time()),
        name=bundle.name,
        description=bundle.description,
    )


def _shown(skill: Skill) -> JsonObject:
    return {
        "id": skill.id,
        "object": "skill",
        "created_at": skill.created_at,
        "name": skill.name,
        "description": skill.description,
        "default_version": str(skill.default_version),
        "latest_version": str(skill.latest_version),
    }


def _version_shown(version: SkillVersion) -> JsonObject:
    return {
        "id": version.id,
        "object": "skill.version",
        "created_at": version.created_at,
        "skill_id": version.skill,
        "version": str(version.version),
        "name": version.name,
        "description": version.description,
    }
