"""Turn a call's result into what the model reads: every part once, nothing as raw base64. Pure."""

import json
from base64 import b64encode
from binascii import Error as NoBase64
from binascii import a2b_base64
from collections.abc import Mapping

from ferrule.images import read_header
from ferrule.mcp.structured import says
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.json_text import JsonValue, encodable

MAX_IMAGE_BYTES = 10 * 1024 * 1024
"""Bytes of one image; providers refuse the whole request for a larger one."""
ERROR_MARK = "The tool reported an error:"
EMPTY = "(no content)"
LONGEST_WORD = 300
"""Characters quoted from a server in one of our notes: a URI or a description, not a page of text."""
_BEGINNING, _ENOUGH = 64, 40
"""Characters of base64 inspected to recognise an image, with and without line breaks: 30 bytes."""
_URL_SAFE = str.maketrans("-_", "+/")


def parts_of(result: Mapping[str, JsonValue]) -> tuple[ContentPart, ...]:
    """Return the parts of a `CallToolResult`: its content blocks, then `structuredContent` unless they contain it."""
    blocks = _blocks(result.get("content"))
    parts = [_part(block) for block in blocks]
    structured = result.get("structuredContent")
    if structured is not None and not says(blocks, structured):
        parts.append(InputText(_json(structured)))
    kept = tuple(part for part in parts if not (isinstance(part, InputText) and not part.text.strip()))
    mark = (InputText(ERROR_MARK),) if result.get("isError") is True else ()
    return (*mark, *(kept or (InputText(EMPTY),)))


def contents_of(resource: Mapping[str, JsonValue]) -> InputText | InputImage:
    """Return a resource's contents: text as it is, an image as an image, a note for any other bytes."""
    text = resource.get("text")
    if isinstance(text, str):
        return InputText(encodable(text))
    data, kind = resource.get("blob"), str(resource.get("mimeType") or "application/octet-stream")
    if isinstance(data, str) and (kind.startswith("image/") or _is_image(data)):
        return _image(data, kind)
    size = f", {_size(data)} bytes" if isinstance(data, str) else ""
    return InputText(f"[resource {_shown(resource.get('uri'))} ({_shown(kind)}{size}): not text, left out]")


def _blocks(content: JsonValue) -> list[JsonValue]:
    """Return the content as a list of blocks: some servers send one block, or plain text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else [content] if isinstance(content, Mapping) else []


def _part(block: JsonValue) -> ContentPart:
    if not isinstance(block, Mapping):
        return InputText("[content that is no block, left out]")
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return InputText(encodable(block["text"]))
    if kind == "image" and isinstance(block.get("data"), str):
        return _image(block["data"], str(block.get("mimeType") or "no type"))
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        return contents_of(block["resource"])
    if kind == "resource_link":
        fields = (block.get(name) for name in ("name", "mimeType", "description"))
        about = ", ".join(_shown(field) for field in fields if isinstance(field, str) and field)
        return InputText(f"[resource {_shown(block.get('uri'))}{f': {about}' if about else ''}]")
    if kind == "audio":
        return InputText(f"[audio ({_shown(block.get('mimeType'))}): cannot be shown, left out]")
    return InputText(f"[content of the unknown kind {_shown(kind)}, left out]")


def _image(text: str, kind: str) -> InputText | InputImage:
    """Return the image under the type of its bytes: providers refuse a whole request for a wrong one."""
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        kind = head[len("data:") :].partition(";")[0]
    if not text.strip():
        return InputText(f"[image ({_shown(kind)}) without any data, left out]")
    if _size(text) > MAX_IMAGE_BYTES:
        return InputText(f"[image of {_size(text)} bytes: larger than {MAX_IMAGE_BYTES}, left out]")
    data = _bytes_of(text)
    if data is None:
        return InputText("[image whose data is not base64, left out]")
    header = read_header(data)
    if header is None:
        why = "models see PNG, JPEG, GIF and WebP, and its bytes are none of these"
        return InputText(f"[image ({_shown(kind)}): {why}, left out]")
    return InputImage(image_url=f"data:{header.mime};base64,{b64encode(data).decode()}")


def _bytes_of(text: str) -> bytes | None:
    """Decode base64 of either alphabet, with line breaks or without padding; None if it is not base64."""
    plain = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
    try:
        return a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
    except (NoBase64, ValueError):
        return None


def _is_image(text: str) -> bool:
    beginning = _bytes_of("".join(text[:_BEGINNING].split())[:_ENOUGH])
    return beginning is not None and read_header(beginning) is not None


def _size(text: str) -> int:
    return len(text) * 3 // 4


def _json(value: JsonValue) -> str:
    return encodable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _shown(value: JsonValue) -> str:
    """Return a server's word for one of our notes: one short line."""
    text = encodable(" ".join(str(value).split()))
    return text if len(text) <= LONGEST_WORD else f"{text[:LONGEST_WORD]}..."
