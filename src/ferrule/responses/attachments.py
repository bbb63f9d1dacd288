"""Files that a client names by id or by address, put into what the upstream is sent: it has none of them, and where a
client may not lead this server it must not lead the upstream either."""

import base64
import mimetypes
from urllib.parse import unquote, urlsplit

from ferrule.images import read_header
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.responses.errors import ApiError, not_found
from ferrule.store import Store
from ferrule.web.download import Downloads, PageRefused
from ferrule.web.urls import BadUrl, read_url

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of all files that are sent within a request: no model server takes more."""

_URLS = {"input_image": "image_url", "input_file": "file_url", "computer_screenshot": "image_url"}
"""The fields of parts that hold addresses."""


class Attachments:
    """Finds the files of one owner for one request. Without `downloads` addresses stay as they are."""

    def __init__(self, store: Store, owner: str, downloads: Downloads | None = None) -> None:
        self._store = store
        self._owner = owner
        self._downloads = downloads
        self._bytes = 0

    async def within(self, item: JsonObject, param: str) -> JsonObject:
        """Return an item with the contents of its files instead of their ids and addresses. Raises `ApiError` for one
        that does not exist or cannot be had."""
        for field in ("content", "output"):
            parts = item.get(field)
            if isinstance(parts, list):
                given = enumerate(parts)
                item = {**item, field: [await self._part(part, f"{param}.{field}[{at}]") for at, part in given]}
            elif isinstance(parts, dict):
                item = {**item, field: await self._part(parts, f"{param}.{field}")}
        return item

    async def _part(self, part: JsonValue, param: str) -> JsonValue:
        if not isinstance(part, dict) or part.get("type") not in _URLS:
            return part
        field = _URLS[part["type"]]
        url = part.get(field)
        if isinstance(part.get("file_id"), str):
            name, data = await self._read(part["file_id"], param)
            kind = _media_type(name, data)
        elif isinstance(url, str) and self._downloads is not None and url[:5].lower() != "data:":
            name, kind, data = await self._fetched(self._downloads, url, f"{param}.{field}")
        else:
            return part
        rest = {name: value for name, value in part.items() if name not in ("file_id", field)}
        whole = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        if part["type"] == "input_file":
            return {**rest, "file_data": whole, "filename": part.get("filename") or name}
        if read_header(data) is None:
            raise ApiError(f"{param}: {name!r} is no image that models read", code="invalid_value", param=param)
        return {**rest, "image_url": whole}

    async def _fetched(self, downloads: Downloads, url: str, param: str) -> tuple[str, str, bytes]:
        """Return the name, the type and the bytes of what is at an address. Raises `ApiError`."""
        try:
            found = await downloads.get_for(self._owner, read_url(url))
        except BadUrl as error:
            raise ApiError(f"{param}: {error}", code="invalid_value", param=param) from error
        except PageRefused as error:
            status, code = (403, "url_forbidden") if error.forbidden else (400, "url_unreachable")
            raise ApiError(f"{param}: {error}", status=status, code=code, param=param) from error
        name = unquote(urlsplit(found.url.text).path.rpartition("/")[2]) or found.url.host
        self._count(len(found.data), name, param)
        declared = found.type.partition(";")[0].strip().lower()
        guessed = _media_type(name, found.data)
        return name, declared if guessed == _UNKNOWN and declared else guessed, found.data

    async def _read(self, file_id: str, param: str) -> tuple[str, bytes]:
        content = await self._store.content(self._owner, file_id)
        if content is None:
            raise not_found("file", file_id, f"{param}.file_id")
        async with content:
            self._count(content.record.bytes, file_id, param)
            return content.record.filename, b"".join([block async for block in content])

    def _count(self, size: int, name: str, param: str) -> None:
        self._bytes += size
        if self._bytes > MAX_BYTES:
            text = f"{param}: with the file {name!r}, {self._bytes:,} bytes of files would be sent, at most"
            raise ApiError(f"{text} {MAX_BYTES:,} can be", param=param)


_UNKNOWN = "application/octet-stream"


def _media_type(name: str, data: bytes) -> str:
    header = read_header(data)
    return header.mime if header else mimetypes.guess_type(name)[0] or _UNKNOWN
