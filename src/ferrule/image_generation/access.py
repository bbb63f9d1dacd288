"""A session's way to images, made when a tool first uses it. Light: what it stands on is imported then."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrule.image_generation.maker import ImageMaker

NOT_HERE = "image_generation cannot be used: {}. The user can set it in config.toml. Go on without images."


class ImageAccess:
    """`open` makes the maker; `missing` returns which setting is missing, or None."""

    def __init__(self, open: Callable[[], "ImageMaker"], missing: Callable[[], str | None]) -> None:  # noqa: A002
        self._open = open
        self.missing = missing
        self._maker: ImageMaker | None = None

    @property
    def maker(self) -> "ImageMaker":
        """What makes the images. Raises `UsageError`."""
        if self._maker is None:
            self._maker = self._open()
        return self._maker

    async def aclose(self) -> None:
        """Close what was opened."""
        maker, self._maker = self._maker, None
        if maker is not None:
            await maker.aclose()
