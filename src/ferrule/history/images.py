"""Items without their images, which give way to a note."""

import msgspec

from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.items import (
    ComputerCallOutput,
    CustomToolCallOutput,
    FunctionCallOutput,
    Message,
    ResponseItem,
    make_item,
)
from ferrule.protocol.payload import BLANK_SCREEN

SMALL = 2048
"""Bytes of an item that is not searched for images: a note would be as large as an image in it."""
REFUSED = "[an image was here; it was left out because the server refused it]"


def without_images(item: ResponseItem, note: str) -> ResponseItem:
    """Replace each image of an item by a note; return the same item if it has none."""
    view = item.view
    if isinstance(view, FunctionCallOutput | CustomToolCallOutput) and _has_image(view.output):
        return make_item(msgspec.structs.replace(view, output=_noted(view.output, note)))
    if isinstance(view, Message) and _has_image(view.content):
        return make_item(msgspec.structs.replace(view, content=_noted(view.content, note)))
    if isinstance(view, ComputerCallOutput) and len(item.raw) >= SMALL:
        return make_item(msgspec.structs.replace(view, output=BLANK_SCREEN))
    return item


def _has_image(content: str | tuple[ContentPart, ...]) -> bool:
    return not isinstance(content, str) and any(isinstance(part, InputImage) for part in content)


def _noted(content: str | tuple[ContentPart, ...], note: str) -> tuple[ContentPart, ...]:
    parts = () if isinstance(content, str) else content
    return tuple(InputText(note) if isinstance(part, InputImage) else part for part in parts)
