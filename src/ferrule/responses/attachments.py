"""Files that a client names by id, put into what the upstream is sent: it has none of them."""

import base64
import mimetypes

from ferrule.images import read_header
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.responses.errors import ApiError, not_found
from ferrule.store import Store

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of all files that are sent within a request: no model server takes more."""

_PARTS = frozenset({"input_image", "input_file", "computer_screenshot"})


class Attachments:
    """Finds the files of one owner for one request."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._bytes = 0

    async def within(self, item: JsonObject, param: str) -> JsonObject:
        """Return an item with the contents of its files instead of their ids. Raises `ApiError` for one that does not
        exist."""
        for field in ("content", "output"):
            parts = item.get(field)
            if isinstance(parts, list):
                given = enumerate(parts)
                item = {**item, field: [await self._part(part, f"{param}.{field}[{at}]") for at, part in given]}
            elif isinstance(parts, dict):
                item = {**item, field: await self._part(parts, f"{param}.{field}")}
        return item

    async def _part(self, part: JsonValue, param: str) -> JsonValue:
        if not isinstance(part, dict) or part.get("type") not in _PARTS or not isinstance(part.get("file_id"), str):
            return part
        rest = {name: value for name, value in part.items() if name != "file_id"}
        name, data = await self._read(part["file_id"], param)
        url = f"data:{_media_type(name, data)};base64,{base64.b64encode(data).decode()}"
        if part["type"] == "input_file":
            return {**rest, "file_data": url, "filename": part.get("filename") or name}
        return {**rest, "image_url": url}

    async def _read(self, file_id: str, param: str) -> tuple[str, bytes]:
        content = await self._store.content(self._owner, file_id)
        if content is None:
            raise not_found("file", file_id, f"{param}.file_id")
        try:
            self._bytes += content.record.bytes
            if self._bytes > MAX_BYTES:
                text = f"{param}: with the file {file_id!r}, {self._bytes:,} bytes of files would be sent, at most"
                raise ApiError(f"{text} {MAX_BYTES:,} can be", param=param)
            return content.record.filename, b"".join([block async for block in content])
        finally:
            await content.aclose()


def _media_type(name: str, data: bytes) -> str:
    header = read_header(data)
    return header.mime if header else mimetypes.guess_type(name)[0] or "application/octet-stream"
