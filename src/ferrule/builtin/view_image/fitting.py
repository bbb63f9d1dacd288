"""Makes an image one that every server takes: of a known format, within its limits of pixels and bytes."""

import io
from typing import TYPE_CHECKING, NamedTuple

from ferrule.images import Header, read_header

if TYPE_CHECKING:
    from PIL.Image import Image

LONG_EDGE, SHORT_EDGE = 2048, 768
"""Pixels; models scale larger images down to this themselves, and some servers refuse them."""
MAX_BYTES = 3_750_000
"""Of the file; in base64 that is 5 MB, the least that the known servers take for one image."""
MAX_PIXELS = 120_000_000
"""More is not decoded: a small file can hold an image that fills the memory."""
JPEG_QUALITIES = (85, 60, 35)
"""Tried in order, until the file is small enough."""
EXTRA = "install ferrule[images] to have images resized"


class BadImage(ValueError):
    """The image cannot be shown; the text says why."""


class Fitted(NamedTuple):
    """An image file and its media type."""

    mime: str
    data: bytes


def fitted(data: bytes) -> Fitted:
    """Return the image as it is if it fits, else smaller. Raises `BadImage`."""
    header = read_header(data)
    if header is None or 0 in header[1:]:
        raise BadImage("invalid or unsupported image data; PNG, JPEG, GIF and WebP can be viewed")
    _check_pixels(header.width, header.height)
    try:
        import PIL.Image  # noqa: F401 - whether it can be
    except ImportError:
        return _as_it_is(header, data)
    return _decoded(header, data)


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise BadImage(f"{width} x {height} pixels are too many")


def _fits(header: Header, data: bytes) -> bool:
    long, short = max(header[1:]), min(header[1:])
    return long <= LONG_EDGE and short <= SHORT_EDGE and len(data) <= MAX_BYTES


def _as_it_is(header: Header, data: bytes) -> Fitted:
    if not _fits(header, data):
        size = f"{header.width} x {header.height} pixels, {len(data)} bytes"
        limit = f"{LONG_EDGE} x {SHORT_EDGE} pixels and {MAX_BYTES} bytes"
        raise BadImage(f"it is too large ({size}; at most {limit}): {EXTRA}")
    return Fitted(header.mime, data)


def _decoded(header: Header, data: bytes) -> Fitted:
    """Decode it, so that nothing broken is sent, and scale it down where it does not fit."""
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
            _check_pixels(*image.size)  # a part of a file can be larger than its first bytes say
            image.load()
            moves = getattr(image, "n_frames", 1) > 1
            if _fits(Header(header.mime, *image.size), data) and not moves:
                return Fitted(header.mime, data)
            upright = ImageOps.exif_transpose(image)
    except BadImage:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Image.DecompressionBombError) as error:
        raise BadImage(f"invalid or unsupported image data ({error})") from error
    return _encoded(_scaled(upright))


def _scaled(image: "Image") -> "Image":
    scale = min(LONG_EDGE / max(image.size), SHORT_EDGE / min(image.size), 1.0)
    if image.mode not in ("RGB", "RGBA", "L"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    width, height = (max(1, round(edge * scale)) for edge in image.size)
    return image if scale == 1.0 else image.resize((width, height))


def _encoded(image: "Image") -> Fitted:
    """As PNG, which loses nothing, or as JPEG where that is too large."""
    out = io.BytesIO()
    image.save(out, "PNG")
    if out.tell() <= MAX_BYTES:
        return Fitted("image/png", out.getvalue())
    for quality in JPEG_QUALITIES:
        out = io.BytesIO()
        image.convert("RGB").save(out, "JPEG", quality=quality)
        if out.tell() <= MAX_BYTES:
            break
    return Fitted("image/jpeg", out.getvalue())
