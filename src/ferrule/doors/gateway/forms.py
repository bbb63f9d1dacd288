"""Uploaded files: bodies of the type `multipart/form-data`, spooled to a temporary file and handed on in blocks."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from ferrule.doors.gateway.http import limited
from ferrule.responses.errors import ApiError
from ferrule.store import StoreError, StoreFull
from ferrule.store.place import NO_SPACE

BLOCK = 1 << 20
MAX_FIELDS = 16
"""Fields of a form beside its file: more than any route knows."""
MAX_FIELD_BYTES = 64 << 10
OVERHEAD = 128 << 10
"""Bytes of a form besides its files, at most: their heads and some short fields. A form that announces more is refused
before it is read."""

FORM = "multipart/form-data"


class Form(msgspec.Struct, frozen=True):
    """A form that has been read."""

    fields: FormData

    def text(self, name: str) -> str | None:
        """Return a field."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else None

    def object(self, name: str) -> str | dict[str, str] | None:
        """Return the fields `name[KEY]` by their keys; the field `name`, which should not be there, as it is."""
        whole = self.text(name)
        fields = {
            key[len(name) + 1 : -1]: value
            for key, value in self.fields.multi_items()
            if key.startswith(f"{name}[") and key.endswith("]") and isinstance(value, str)
        }
        return whole if whole is not None else fields or None

    def file(self, name: str) -> UploadFile:
        """Return the file in a field. Raises `ApiError` if there is none."""
        value = self.fields.get(name)
        if not isinstance(value, UploadFile):
            raise ApiError(f"{name}: a file is missing", code="missing_required_parameter", param=name)
        return value

    def files(self, name: str) -> list[UploadFile]:
        """Return the files in a field, also those of `name[]`. Raises `ApiError` if there is none."""
        given = [value for key, value in self.fields.multi_items() if key in (name, f"{name}[]")]
        found = [value for value in given if isinstance(value, UploadFile)]
        if not found:
            raise ApiError(f"{name}: a file is missing", code="missing_required_parameter", param=name)
        return found


@asynccontextmanager
async def form_of(request: Request, limit: int, *, files: int = 1, param: str | None = None) -> AsyncIterator[Form]:
    """Read a form with at most so many files, which have at most `limit` bytes together; `param` is the field that they
    are in. Raises `ApiError`, and `StoreError` if there is no place for them."""
    if not request.headers.get("content-type", "").lower().startswith(FORM):
        raise ApiError(f"Send the file as {FORM}.", status=415, code="unsupported_media_type")
    reading = limited(request, limit + OVERHEAD).form(
        max_files=files, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES
    )
    try:
        fields = await reading
    except MultiPartException as error:
        raise ApiError(f"The form cannot be read: {error}", code="invalid_form", param=param) from error
    except OSError as error:
        kind = StoreFull if error.errno in NO_SPACE else StoreError
        raise kind(f"{tempfile.gettempdir()} takes no more of a file that is uploaded: {error.strerror}") from error
    try:
        yield Form(fields)
    finally:
        await fields.close()


async def blocks_of(file: UploadFile) -> AsyncIterator[bytes]:
    """Yield what a file holds."""
    while block := await file.read(BLOCK):
        yield block
