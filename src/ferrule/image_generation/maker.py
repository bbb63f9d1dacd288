"""Makes images by one backend, and hands out only what is an image of the format that was wanted."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from ferrule.image_generation.backend import ImageBackend, ImageFailed, ImageRequest
from ferrule.image_generation.picture import Picture, checked, fitting

UNUSABLE = "The image that the backend sent cannot be used: {}."
BAD_INPUT = "The {} cannot be used: {}."


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """An image, and what its backend says of it."""

    picture: Picture
    revised_prompt: str | None = None
    quality: str | None = None
    background: str | None = None


def nobody(picture: Picture) -> None:
    """Take no notice of an image that is not finished yet."""


class ImageMaker:
    """`models` maps names that are asked for to the backend's own; `model` is asked for where a request names none."""

    def __init__(self, backend: ImageBackend, *, models: Mapping[str, str], model: str | None) -> None:
        self._backend = backend
        self._models = models
        self._model = model

    async def make(self, request: ImageRequest, partial: Callable[[Picture], None] = nobody) -> Made:
        """Make an image, or edit one; `partial` is given those on the way, as many as were wanted at most. Raises
        `ImageFailed`."""
        for name, data in (("image to edit", request.image), ("mask", request.mask)):
            if data is not None:
                _usable(data, name)
        model = self._model if request.model is None else self._models.get(request.model, request.model)
        asked = msgspec.structs.replace(request, model=model)
        taken = _Partials(asked, partial)
        sent = await self._backend.make(asked, taken.take)
        try:
            picture = await _fitted(sent.data, asked)
        except ImageFailed as error:
            raise ImageFailed(UNUSABLE.format(error)) from error
        return Made(
            picture=picture,
            revised_prompt=sent.revised_prompt,
            quality=sent.quality,
            background=sent.background,
        )

    async def aclose(self) -> None:
        """End what belongs to the backend."""
        await self._backend.aclose()


class _Partials:
    """Hands on the images that are not finished: so many at most, and no damaged ones."""

    def __init__(self, request: ImageRequest, partial: Callable[[Picture], None]) -> None:
        self._left = request.partial_images
        self._request = request
        self._partial = partial

    async def take(self, data: bytes) -> None:
        if self._left <= 0:
            return
        try:
            picture = await _fitted(data, self._request)
        except ImageFailed:
            return
        self._left -= 1
        self._partial(picture)


async def _fitted(data: bytes, request: ImageRequest) -> Picture:
    return await asyncio.to_thread(fitting, data, request.output_format, request.output_compression)


def _usable(data: bytes, name: str) -> None:
    """Check an image that goes to the backend. Raises `ImageFailed`."""
    try:
        checked(data)
    except ImageFailed as error:
        raise ImageFailed(BAD_INPUT.format(name, error)) from error
