"""The table `[computer]`: the screen of the tools `computer` and `computer_use_preview`."""

from typing import Annotated

import msgspec

Side = Annotated[int, msgspec.Meta(ge=200, le=4096)]
"""Pixels: a smaller page is not usable, and a larger picture is more than models look at."""
Address = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://[^/]", description="an address that begins with http:// or https://"
    ),
]


class ComputerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`start_url` is open at first. The display's sides are in pixels: by default those that models of computers were
    trained on. `browser` is the program of a Chromium; None: what is found."""

    start_url: Address | None = None
    display_width: Side = 1024
    display_height: Side = 768
    browser: str | None = None
