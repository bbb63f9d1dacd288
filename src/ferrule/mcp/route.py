"""Another way to a remote server than the network of this machine."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import httpx2


class Route(msgspec.Struct, frozen=True):
    """How a server is reached. `advice` is the next step if the server rejects the credentials."""

    transport: "httpx2.AsyncBaseTransport"
    advice: str
