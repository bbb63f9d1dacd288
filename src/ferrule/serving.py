"""What every listening door checks before it answers: where it listens, who is addressed, and from which page.

A web page can reach a server on this machine: by a name of its own that it lets point here (DNS rebinding), or by a
request from its own address. The headers `Host` and `Origin` tell both, and a page cannot forge them.
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import msgspec

from ferrule.protocol.errors import FerruleError, UsageError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

BACKLOG = 2048
"""Connections that may wait to be accepted: many clients may come at once."""

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_BEARER = "bearer "


class Refused(FerruleError):
    """A request for another server, or from a page that may not ask."""


class Bind(msgspec.Struct, frozen=True):
    """An address to listen at. Port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `HOST:PORT`; an IPv6 address stands in brackets. Raises `UsageError`."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        bare = host[1:-1] if bracketed else host
        fits = colon and bare and (bracketed or ":" not in host) and port.isascii() and port.isdigit()
        if not fits or int(port) > 65535:
            raise UsageError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8787 or [::1]:0")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect. A name other than `localhost` may mean any address."""
        address = _address(self.host)
        return self.host == "localhost" if address is None else address.is_loopback

    @property
    def is_everywhere(self) -> bool:
        """Whether it is all of the machine's addresses."""
        address = _address(self.host)
        return address is not None and address.is_unspecified


def listen(bind: Bind) -> tuple[socket.socket, Bind]:
    """Return a listening socket, and where it listens. Raises `UsageError` if that is not possible."""
    try:
        opened = _listening(bind)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"{bind} cannot be listened at ({why}): choose another address with --bind HOST:PORT"
        ) from error
    return opened, Bind(*opened.getsockname()[:2])


def _listening(bind: Bind) -> socket.socket:
    """Return a listening socket. Only with its protocol named does asyncio send without Nagle's delay, which holds the
    second write of an answer back for 40 ms."""
    found = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened


class Callers(msgspec.Struct, frozen=True):
    """Who may ask: the names by which a server is called. `addresses`: by any address of the machine, too, which no
    web page can take for a name of its own."""

    names: frozenset[str]
    addresses: bool = False

    @classmethod
    def of(cls, *binds: Bind, allowed: Iterable[str] = ()) -> Self:
        """Return the names of a server that listens there, and the `allowed` ones."""
        names = {bind.host.lower() for bind in binds} | {name.lower().strip("[]") for name in allowed}
        return cls(_LOCAL_NAMES | names, any(bind.is_everywhere for bind in binds))

    def check(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """Check the values of the headers `Host` and `Origin`. Raises `Refused`."""
        match tuple(hosts):
            case (host,) if self._is_ours(f"//{host}"):
                pass
            case found:
                raise Refused(f"The host {', '.join(found)!r} is not served here; `allowed_hosts` lists further names.")
        for origin in origins:
            if not (origin.startswith(("http://", "https://")) and self._is_ours(origin)):
                raise Refused(f"Pages of {origin!r} may not ask here; `allowed_hosts` lists further hosts.")

    def _is_ours(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            return False
        if parts.username is not None or parts.path or parts.query or parts.fragment:
            return False
        return host in self.names or (self.addresses and _address(host) is not None)


def bearer_token(authorization: str) -> str:
    """Return the token of an `Authorization` header; empty if there is none."""
    return authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def quiet_server(app: "ASGIApp", **options: Any) -> "uvicorn.Server":
    """Return an HTTP server for `app`, ready to serve, without signals and logs of its own. `options` are those of
    `uvicorn.Config`."""
    import uvicorn

    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, proxy_headers=False, server_header=False, **options
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    return server
