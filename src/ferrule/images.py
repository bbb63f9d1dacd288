"""Read an image's format and size from its first bytes, without a decoder.

Sources: PNG (W3C), JPEG (ITU T.81, annex B), GIF89a, WebP container specification.
"""

import struct
from typing import NamedTuple

_NO_SIZE = frozenset([0xC4, 0xC8, 0xCC])
"""JPEG markers between SOF0 and SOF15 that do not begin a frame."""


class Header(NamedTuple):
    """The media type, and width and height in pixels."""

    mime: str
    width: int
    height: int


def read_header(data: bytes) -> Header | None:
    """Read the header of a PNG, JPEG, GIF or WebP image; None for anything else. A truncated one may report 0
    pixels."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return Header("image/png", *_numbers(">II", data, 16))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return Header("image/gif", *_numbers("<HH", data, 6))
    if data.startswith(b"\xff\xd8\xff"):
        return Header("image/jpeg", *_jpeg(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return Header("image/webp", *_webp(data))
    return None


def _numbers(form: str, data: bytes, offset: int) -> tuple[int, int]:
    if len(data) < offset + struct.calcsize(form):
        return 0, 0
    first, second = struct.unpack_from(form, data, offset)
    return first, second


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width = _numbers(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def _webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = _numbers("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return 0, 0
