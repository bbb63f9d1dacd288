"""The settings of a screen, and the addresses that are opened."""

from urllib.parse import urlsplit

import msgspec

from ferrule.containers.screen.errors import BadAddress
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.errors import UsageError

SCHEMES = ("http", "https")


def checked(settings: ComputerSettings) -> ComputerSettings:
    """Return the settings, which may come from a program. Raises `UsageError` for those that cannot be."""
    try:
        if settings.start_url is not None:
            read_page_address(settings.start_url)
        return msgspec.convert(msgspec.to_builtins(settings), ComputerSettings)
    except BadAddress as error:
        raise UsageError(f"start_url: {error}") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"the screen cannot be as it is asked for: {error}") from error


def read_page_address(text: str) -> str:
    """Return an address that can be opened. Raises `BadAddress`."""
    shown = repr(text if len(text) <= 200 else f"{text[:200]}...")
    try:
        text.encode()
        parts = urlsplit(text.strip())
        host = parts.hostname
    except ValueError as error:
        raise BadAddress(f"{shown} is no address: {error}.") from error
    if parts.scheme.lower() not in SCHEMES:
        raise BadAddress(f"{shown} is not opened: only addresses that begin with http:// or https:// are.")
    if not host:
        raise BadAddress(f"{shown} names no host.")
    return text.strip()
