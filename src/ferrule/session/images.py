"""Images in the history: the oldest give way to a note when there are too many bytes of them, and so do those that a
server refuses. Otherwise every later request would fail."""

import base64
import os
from collections.abc import Iterable, Sequence, Set

from ferrule.history.images import REFUSED, SMALL, without_images
from ferrule.history.pairs import answered_id
from ferrule.images import read_header
from ferrule.model.recipient import mark_of
from ferrule.protocol.content import ContentPart, InputImage
from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import (
    ComputerCallOutput,
    CustomToolCallOutput,
    FunctionCallOutput,
    Message,
    ResponseItem,
)
from ferrule.reading import Unreadable, read_file

MAX_IMAGE_BYTES = 16 * 1024 * 1024
"""For all images in one request, in base64; servers accept requests of 20 MB and more."""
DROPPED = "[an image was here; it was left out because there are too many: view it again if it is needed]"


def bounded(items: tuple[ResponseItem, ...], limit: int = MAX_IMAGE_BYTES) -> tuple[ResponseItem, ...]:
    """Keep the newest images that fit the limit; return the same tuple if all do."""
    room = limit
    kept: list[ResponseItem] | None = None
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if len(item.raw) < SMALL or not (size := _image_bytes(item)):
            continue
        room -= size
        if room < 0:
            kept = list(items) if kept is None else kept
            kept[at] = without_images(item, DROPPED)
    return items if kept is None else tuple(kept)


def without_refused(items: Sequence[ResponseItem]) -> list[ResponseItem] | None:
    """Return the items without the images that a server can have refused: those that no answer of the model has
    followed yet, else (it is another model's history) all. Returns None where there is no image."""
    new = len(items)
    while new and (answered_id(items[new - 1].view) is not None or _is_users(items[new - 1])):
        new -= 1
    for start in (new, 0):
        changed = [*items[:start], *(without_images(item, REFUSED) for item in items[start:])]
        if any(one is not other for one, other in zip(changed, items, strict=True)):
            return changed
    return None


def without_marked(items: Iterable[ResponseItem], marks: Set[str]) -> list[ResponseItem]:
    """Remove the images of the items with these marks."""
    return [without_images(item, REFUSED) if marks and mark_of(item.raw) in marks else item for item in items]


def _is_users(item: ResponseItem) -> bool:
    return isinstance(item.view, Message) and item.view.role != "assistant"


def _content(item: ResponseItem) -> str | tuple[ContentPart, ...]:
    view = item.view
    if isinstance(view, FunctionCallOutput | CustomToolCallOutput):
        return view.output
    return view.content if isinstance(view, Message) else ""


def _image_bytes(item: ResponseItem) -> int:
    if isinstance(item.view, ComputerCallOutput):
        return len(item.raw)
    content = _content(item)
    if isinstance(content, str):
        return 0
    return sum(len(part.image_url or "") for part in content if isinstance(part, InputImage))


def image_input(source: str | bytes | os.PathLike[str]) -> InputImage:
    """Return an image for a prompt: the bytes of a PNG, JPEG, GIF or WebP image, a file, or a URL.

    Raises `UsageError` for anything else, and where the file cannot be read.
    """
    if isinstance(source, str) and source.startswith(("https://", "http://", "data:")):
        return InputImage(image_url=source)
    if isinstance(source, bytes):
        return image_of(source, "an image given as bytes")
    shown = os.fspath(source)
    try:
        return image_of(read_file(shown, MAX_IMAGE_BYTES), shown)
    except (OSError, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"the image {shown} cannot be read: {reason}") from error


def image_of(data: bytes, shown: str) -> InputImage:
    """Return the image in these bytes. Raises `UsageError` that begins with `shown` if it is of no known format."""
    header = read_header(data)
    if header is None:
        raise UsageError(f"{shown} is not a PNG, JPEG, GIF or WebP image")
    return InputImage(image_url=f"data:{header.mime};base64,{base64.b64encode(data).decode()}")
