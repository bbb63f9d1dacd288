"""The settings of a screen."""

from typing import Self
from urllib.parse import urlsplit

import msgspec

from ferrule.containers.screen.errors import BadAddress
from ferrule.protocol.errors import UsageError

WIDTH, HEIGHT = 1024, 768
"""Pixels: what models of computers were trained on."""
SMALLEST, LARGEST = 200, 4096
"""Pixels of a side: a page below is not usable, and a picture above is more than models look at."""
SCHEMES = ("http", "https")


class ScreenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The address that is open at first, the size in pixels, and the browser's program; None: what is found."""

    start_url: str | None = None
    display_width: int = WIDTH
    display_height: int = HEIGHT
    browser: str | None = None

    def checked(self) -> Self:
        """Return the settings. Raises `UsageError` for those that cannot be."""
        for name in ("display_width", "display_height"):
            if not SMALLEST <= getattr(self, name) <= LARGEST:
                raise UsageError(f"{name} is {getattr(self, name)}: choose {SMALLEST} to {LARGEST} pixels")
        if self.start_url is not None:
            try:
                read_address(self.start_url)
            except BadAddress as error:
                raise UsageError(f"start_url: {error}") from error
        return self


def read_address(text: str) -> str:
    """Return an address that can be opened. Raises `BadAddress`."""
    shown = repr(text if len(text) <= 200 else f"{text[:200]}...")
    try:
        parts = urlsplit(text.strip())
        host = parts.hostname
    except ValueError as error:
        raise BadAddress(f"{shown} is no address: {error}.") from error
    if parts.scheme.lower() not in SCHEMES:
        raise BadAddress(f"{shown} is not opened: only addresses that begin with http:// or https:// are.")
    if not host:
        raise BadAddress(f"{shown} names no host.")
    return text.strip()
