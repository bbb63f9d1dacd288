"""From the result of a call to what the model reads: every part once, nothing as raw base64. Pure."""

import base64
import json
from collections.abc import Iterator, Mapping

import msgspec

from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.json_text import JsonValue, encodable

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What models look at."""
MAX_IMAGE_BYTES = 10 * 1024 * 1024
"""Bytes of one image; providers refuse the whole request for a larger one."""
ERROR_MARK = "The tool reported an error:"
EMPTY = "(no content)"
LONGEST_WORD = 300
"""Characters of a server's own words in a note of ours: a URI or a description, and no page of text."""


def parts_of(result: Mapping[str, JsonValue]) -> tuple[ContentPart, ...]:
    """The parts of a `CallToolResult`: its content blocks, then `structuredContent` unless they say it already."""
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    parts: list[ContentPart] = [InputText(ERROR_MARK)] if result.get("isError") is True else []
    parts += (_part(block) for block in blocks)
    structured = result.get("structuredContent")
    if structured is not None and not _says(blocks, structured):
        parts.append(InputText(_json(structured)))
    kept = tuple(part for part in parts if not (isinstance(part, InputText) and not part.text))
    return kept or (InputText(EMPTY),)


def contents_of(resource: Mapping[str, JsonValue]) -> InputText | InputImage:
    """The contents of a resource: text as it is, an image as an image, a note for any other bytes."""
    text = resource.get("text")
    if isinstance(text, str):
        return InputText(encodable(text))
    data, kind = resource.get("blob"), str(resource.get("mimeType") or "application/octet-stream")
    if isinstance(data, str) and kind in IMAGE_TYPES:
        return _image(data, kind)
    size = f", {len(data) * 3 // 4} bytes" if isinstance(data, str) else ""
    return InputText(f"[resource {_shown(resource.get('uri'))} ({_shown(kind)}{size}): not text, left out]")


def _part(block: JsonValue) -> ContentPart:
    if not isinstance(block, Mapping):
        return InputText("[content that is no block, left out]")
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return InputText(encodable(block["text"]))
    if kind == "image" and isinstance(block.get("data"), str):
        return _image(block["data"], str(block.get("mimeType") or "image/png"))
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        return contents_of(block["resource"])
    if kind == "resource_link":
        fields = (block.get(name) for name in ("name", "mimeType", "description"))
        about = ", ".join(_shown(field) for field in fields if isinstance(field, str) and field)
        return InputText(f"[resource {_shown(block.get('uri'))}{f': {about}' if about else ''}]")
    if kind == "audio":
        return InputText(f"[audio ({_shown(block.get('mimeType'))}): cannot be shown, left out]")
    return InputText(f"[content of the unknown kind {_shown(kind)}, left out]")


def _image(data: str, kind: str) -> InputText | InputImage:
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        kind = head[len("data:") :].partition(";")[0]
    size = len(data) * 3 // 4
    if kind not in IMAGE_TYPES:
        return InputText(f"[image of the type {_shown(kind)}, which models cannot see: left out]")
    if size > MAX_IMAGE_BYTES:
        return InputText(f"[image of {size} bytes: larger than {MAX_IMAGE_BYTES}, left out]")
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return InputText("[image whose data is not base64, left out]")
    return InputImage(image_url=f"data:{kind};base64,{data}")


def _says(blocks: list[JsonValue], structured: JsonValue) -> bool:
    """Whether the text blocks already say it: one of them is its JSON, or together they are its only value."""
    texts = [str(block.get("text")) for block in blocks if isinstance(block, Mapping) and block.get("type") == "text"]
    values = [_parsed(text) for text in texts]
    if structured in values:
        return True
    if not isinstance(structured, Mapping) or len(structured) != 1:
        return False
    only = next(iter(structured.values()))  # servers wrap what is no object: {"result": ...}
    wanted = only if isinstance(only, list) else [only]
    return any(list(candidate) == wanted for candidate in _candidates(values, texts))


def _candidates(values: list[JsonValue], texts: list[str]) -> Iterator[list[JsonValue]]:
    yield values
    yield list(texts)
    if len(values) == 1:
        yield values[0] if isinstance(values[0], list) else values


def _parsed(text: str) -> JsonValue:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def _json(value: JsonValue) -> str:
    return encodable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _shown(value: JsonValue) -> str:
    """A server's word in a note of ours: one line, not long."""
    text = encodable(" ".join(str(value).split()))
    return text if len(text) <= LONGEST_WORD else f"{text[:LONGEST_WORD]}..."
