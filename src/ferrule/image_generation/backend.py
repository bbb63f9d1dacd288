"""What every image backend takes and returns."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from ferrule.protocol.errors import FerruleError

ImageFormat = Literal["png", "webp", "jpeg"]
FORMATS: tuple[ImageFormat, ...] = ("png", "webp", "jpeg")
MAX_PROMPT = 32_000
"""Characters: the API's limit."""
MAX_BYTES = 48 << 20
"""Bytes of an image: in base64 they are the 64 MB that the API's clients and servers take."""

PartialTaker = Callable[[bytes], Awaitable[None]]
"""Is given each image that is not finished yet, as the backend sends it."""


class ImageFailed(FerruleError):
    """No image came of a request: one sentence for the model, without addresses or keys. `code` is the backend's word
    for it, where it has one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class ImageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is wanted, in the words of the API; None leaves a choice to the backend. With `image` that one is
    edited, where `mask` is transparent. `partial_images` are wanted on the way."""

    prompt: str
    model: str | None = None
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: ImageFormat = "png"
    output_compression: int | None = None
    input_fidelity: str | None = None
    moderation: str | None = None
    partial_images: int = 0
    image: bytes | None = None
    mask: bytes | None = None

    def options(self) -> dict[str, str | int]:
        """Return what was chosen beside prompt, model and images, by the API's names."""
        named: dict[str, str | int | None] = {
            "size": self.size,
            "quality": self.quality,
            "background": self.background,
            "output_format": None if self.output_format == "png" else self.output_format,
            "output_compression": self.output_compression,
            "moderation": self.moderation,
            "input_fidelity": None if self.image is None else self.input_fidelity,
        }
        return {name: value for name, value in named.items() if value is not None and value != "auto"}


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend has sent: the file, unchecked, and what it says of it."""

    data: bytes
    revised_prompt: str | None = None
    size: str | None = None
    quality: str | None = None
    background: str | None = None


class ImageBackend(Protocol):
    """A way to make images."""

    async def make(self, request: ImageRequest, partial: PartialTaker) -> Sent:
        """Make an image, or edit one. Raises `ImageFailed`."""
        ...

    async def aclose(self) -> None:
        """End what belongs to it."""
        ...
