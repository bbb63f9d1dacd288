"""Parts of messages and tool outputs as content blocks."""

from typing import Any

from ferrule.protocol.content import ContentPart, InputAudio, InputFile, InputImage, text_of
from ferrule.protocol.items import OutputBody

Block = dict[str, Any]

IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Images that the API takes."""
PDF = "application/pdf"


def text_block(text: str) -> Block:
    """Return a block of text."""
    return {"type": "text", "text": text}


def blocks_of(content: OutputBody) -> list[Block]:
    """Return the blocks of a message or an output; blank text has none, because the API refuses it."""
    parts = (text_block(content),) if isinstance(content, str) else (_block(part) for part in content)
    return [block for block in parts if block["type"] != "text" or block["text"].strip()]


def _block(part: ContentPart) -> Block:
    match part:
        case InputImage():
            return _image(part)
        case InputFile():
            return _document(part)
        case InputAudio():
            return text_block("[a sound was here; it was left out because this API takes none]")
    return text_block(text_of((part,)))


def _image(part: InputImage) -> Block:
    source = _source(part.image_url) if part.image_url else _file(part.file_id)
    kind = source.get("media_type", "image/png")
    if kind not in IMAGES:
        return text_block(f"[an image was here; it was left out because this API takes no {kind}]")
    return {"type": "image", "source": source}


def _document(part: InputFile) -> Block:
    """Return a file: a PDF, a text, or one that the API fetches or has."""
    given = part.file_data or part.file_url
    source = _source(given) if given else _file(part.file_id)
    title = {"title": part.filename} if part.filename else {}
    kind = source.get("media_type", PDF)
    if source["type"] == "base64" and kind.startswith("text/"):
        from base64 import b64decode

        source = {
            "type": "text",
            "media_type": "text/plain",
            "data": b64decode(source["data"]).decode(errors="replace"),
        }
    elif kind != PDF:
        return text_block(
            f"[the file {part.filename or ''} was here; it was left out because this API takes no {kind}]"
        )
    return {"type": "document", "source": source, **title}


def _source(url: str) -> Block:
    """Return the source that a URL stands for; a `data:` URL holds it."""
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url.removeprefix("data:").partition(",")
    return {"type": "base64", "media_type": head.partition(";")[0] or PDF, "data": data}


def _file(file_id: str | None) -> Block:
    return {"type": "file", "file_id": file_id or ""}
