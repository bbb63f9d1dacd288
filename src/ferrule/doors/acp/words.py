"""A prompt's blocks as what the user says to the model. Pure."""

from base64 import b64decode
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import UsageError
from ferrule.protocol.json_text import encodable

Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock


def words_of(blocks: Sequence[Block]) -> tuple[ContentPart, ...]:
    """Return what the model reads. Raises `UsageError` for an empty prompt and for what no model of ours hears."""
    parts = tuple(map(_part, blocks))
    if not any(isinstance(part, InputImage) or (isinstance(part, InputText) and part.text.strip()) for part in parts):
        raise UsageError("the prompt is empty")
    return parts


def command_text(blocks: Sequence[Block]) -> str:
    """Return the text of a prompt that may be a command: it begins with `/`; else nothing."""
    first = blocks[0] if blocks else None
    if not isinstance(first, TextContentBlock) or not first.text.startswith("/"):
        return ""
    return "".join(block.text for block in blocks if isinstance(block, TextContentBlock)).strip()


def beside_text(blocks: Sequence[Block]) -> tuple[ContentPart, ...]:
    """Return what goes with a command: images, files and links. Raises `UsageError`."""
    return tuple(_part(block) for block in blocks if not isinstance(block, TextContentBlock))


def path_of(uri: str) -> str | None:
    """Return the path that a `file:` URI names; None for another one."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def _part(block: Block) -> ContentPart:
    match block:
        case TextContentBlock():
            return InputText(encodable(block.text))
        case ImageContentBlock():
            return _image(block.mime_type, block.data)
        case ResourceContentBlock():
            about = f": {block.description}" if block.description else ""
            return InputText(encodable(f"[{block.title or block.name}]({path_of(block.uri) or block.uri}){about}"))
        case EmbeddedResourceContentBlock(resource=BlobResourceContents() as resource):
            return _binary(resource)
        case EmbeddedResourceContentBlock(resource=resource):
            place = path_of(resource.uri) or resource.uri
            return InputText(encodable(f'<file path="{place}">\n{resource.text}\n</file>'))
        case AudioContentBlock():
            raise UsageError("audio is not taken: write what you want to say")


def _image(mime_type: str, data: str) -> InputImage:
    if not mime_type.startswith("image/"):
        raise UsageError(f"an image of the type {mime_type!r} is none")
    _checked(data, "the image")
    return InputImage(image_url=f"data:{mime_type};base64,{data}")


def _binary(resource: BlobResourceContents) -> ContentPart:
    kind, place = resource.mime_type or "", path_of(resource.uri) or resource.uri
    if kind.startswith("image/"):
        return _image(kind, resource.blob)
    data = _checked(resource.blob, place)
    try:
        return InputText(f'<file path="{place}">\n{data.decode()}\n</file>')
    except UnicodeDecodeError:
        return InputText(f"[{place}: a file of {len(data)} bytes that is no text; it can be read there if it is one]")


def _checked(data: str, what: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise UsageError(f"{what} is not base64") from error
