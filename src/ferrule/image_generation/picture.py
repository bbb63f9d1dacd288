"""An image file as it was wanted: checked by its first bytes, and written in another format where it came in one."""

import io
from typing import TYPE_CHECKING

import msgspec

from ferrule.image_generation.backend import FORMATS, MAX_BYTES, ImageFailed, ImageFormat
from ferrule.images import read_header

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 7680 * 4320
"""Four times the API's largest image; more fills the memory of whoever opens it."""
NO_PILLOW = "it came as {}, and to write it as {} takes the extra ferrule[images]"


class Picture(msgspec.Struct, frozen=True):
    """An image file; width and height are in pixels."""

    data: bytes
    format: ImageFormat
    width: int
    height: int

    @property
    def size(self) -> str:
        """Width and height as the API writes them."""
        return f"{self.width}x{self.height}"

    @property
    def mime(self) -> str:
        """The media type."""
        return f"image/{self.format}"


def fitting(data: bytes, wanted: ImageFormat, compression: int | None = None) -> Picture:
    """Return an image in the format that is wanted. Blocks for up to seconds where it has to be written anew. Raises
    `ImageFailed`, whose text continues "The image cannot be used: "."""
    kind, width, height = checked(data)
    if kind != wanted:
        data = _converted(data, kind, wanted, compression)
        kind, width, height = checked(data)
    return Picture(data, wanted, width, height)


def checked(data: bytes) -> tuple[str, int, int]:
    """Return the format, width and height of an image. Raises `ImageFailed` as `fitting` does."""
    header = read_header(data)
    if header is None or not header.width or not header.height:
        raise ImageFailed("it is no PNG, WebP, JPEG or GIF")
    if len(data) > MAX_BYTES:
        raise ImageFailed(f"it has {len(data):,} bytes, more than {MAX_BYTES:,}")
    _check_pixels(header.width, header.height)
    return header.mime.removeprefix("image/"), header.width, header.height


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ImageFailed(f"it has {width * height / 1e6:.0f} megapixels, more than {MAX_PIXELS / 1e6:.0f}")


def _converted(data: bytes, kind: str, wanted: ImageFormat, compression: int | None) -> bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImageFailed(NO_PILLOW.format(kind, wanted)) from error
    out = io.BytesIO()
    try:
        with Image.open(io.BytesIO(data), formats=(*map(str.upper, FORMATS), "GIF")) as image:
            _check_pixels(*image.size)  # a part of a file can be larger than its first bytes say
            _for(image, wanted).save(out, wanted.upper(), quality=100 if compression is None else compression)
    except Image.DecompressionBombError as error:
        raise ImageFailed("it has far too many pixels") from error
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:
        raise ImageFailed(f"it is damaged ({type(error).__name__})") from error
    return out.getvalue()


def _for(image: "Image", wanted: ImageFormat) -> "Image":
    """Return an image in colours that the format knows; where it has none for transparency, on white."""
    if wanted != "jpeg":
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    from PIL import Image as Images

    seen = image.convert("RGBA")
    white = Images.new("RGBA", seen.size, "white")
    white.alpha_composite(seen)
    return white.convert("RGB")
