"""How many tokens a conversation takes: the server's last count, and an estimate of what came since.

Bytes stand for tokens; there is no tokenizer. The server's count corrects the estimate after each response.
"""

from collections.abc import Iterable

from ferrule.protocol.content import ContentPart, InputImage
from ferrule.protocol.items import (
    ComputerCallOutput,
    CustomToolCallOutput,
    FunctionCallOutput,
    ImageGenerationCall,
    Message,
    Reasoning,
    ResponseItem,
)
from ferrule.protocol.truncation import BYTES_PER_TOKEN, tokens_of_bytes

IMAGE_TOKENS = 1_500
"""Tokens of one image, whatever its bytes: servers count 85 to 2,600, for a screenshot about this many."""
SMALL = 2_048
"""Bytes of an item that holds no image worth a look."""
LEAST_PART = 0.5
"""A count below this part of the estimate leaves something out, cached tokens say: no text has over 8 bytes a token."""
MOST_PER_TOKEN = 2.0
"""How far the server's count may scale the estimate: text in hexadecimal has about two bytes a token."""


def estimate(item: ResponseItem) -> int:
    """Return the approximate tokens of an item, at least 1."""
    size = len(item.raw)
    if size < SMALL:
        return tokens_of_bytes(size)
    view = item.view
    if isinstance(view, Reasoning) and view.encrypted_content:
        return tokens_of_bytes(size - len(view.encrypted_content) // 4)  # base64: three bytes in four
    hidden, images = _images(item)
    return tokens_of_bytes(size - hidden) + images * IMAGE_TOKENS


def estimate_all(items: Iterable[ResponseItem]) -> int:
    """Return the approximate tokens of items, without a call for each small one: histories have many of them."""
    small = large = 0
    for item in items:
        size = len(item.raw)
        if size < SMALL:
            small -= -size // BYTES_PER_TOKEN
        else:
            large += estimate(item)
    return small + large


def _images(item: ResponseItem) -> tuple[int, int]:
    """Return the bytes of the images in an item, and their number."""
    view = item.view
    if isinstance(view, ComputerCallOutput | ImageGenerationCall):
        return len(item.raw), 1
    content: str | tuple[ContentPart, ...] = ()
    if isinstance(view, FunctionCallOutput | CustomToolCallOutput):
        content = view.output
    elif isinstance(view, Message):
        content = view.content
    if isinstance(content, str):
        return 0, 0
    urls = [part.image_url or "" for part in content if isinstance(part, InputImage)]
    return sum(map(len, urls)), len(urls)


class Meter:
    """Measures the next request. `fixed` is what each request has beside its items: instructions and tools."""

    __slots__ = ("_offset", "_scale")

    def __init__(self) -> None:
        self._offset: int | None = None
        self._scale = 1.0

    @property
    def scale(self) -> float:
        """The server's tokens for one of the estimate's."""
        return self._scale

    def next(self, items: int, fixed: int) -> int:
        """Return the tokens of a request with `items` estimated tokens of history."""
        if self._offset is None:
            return round((items + fixed) * self._scale)
        return self._offset + round(items * self._scale)

    def counted(self, tokens: int, items: int, fixed: int) -> None:
        """Take the server's count of a request whose estimate was `items` and `fixed`; 0: it does not say."""
        estimated = items + fixed
        if tokens < estimated * LEAST_PART:
            return
        self._scale = min(max(tokens / max(estimated, 1), 1.0), MOST_PER_TOKEN)
        self._offset = tokens - round(items * self._scale)

    def forget(self) -> None:
        """The history is another one: what the server counted was not for it."""
        self._offset = None
