"""An HTTP client that reaches only what a guard lets through, redirects too.

Imported when it is used: it brings the HTTP library.
"""

import functools
import ssl
from collections.abc import Iterable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import httpcore2
import httpx2

from ferrule.egress.guard import CONNECT_S, Guard, Unreachable
from ferrule.egress.header_lines import read_in_linear_time
from ferrule.protocol.errors import UsageError

TIMEOUT = httpx2.Timeout(20.0, connect=CONNECT_S)
"""Seconds without a byte, and to connect to an address."""
MAX_CONNECTIONS, MAX_IDLE, IDLE_S = 100, 20, 30.0
"""Of one client: those open at once, those kept for the next request, and for how long."""


def guarded_client(guard: Guard, *, ca_file: str | None = None, **options: Any) -> httpx2.AsyncClient:
    """Return a client whose every connection `guard` makes; `ca_file` holds further roots. `options` are those of
    `httpx2.AsyncClient`. A request raises `Refused` where the guard does. Proxies of the environment are not used: they
    would look up the names. Raises `UsageError` for a `ca_file` that cannot be read."""
    transport = guarded_transport(guard, ca_file=ca_file)
    return httpx2.AsyncClient(transport=transport, trust_env=False, **{"timeout": TIMEOUT, **options})


def guarded_transport(guard: Guard, *, ca_file: str | None = None) -> httpx2.AsyncHTTPTransport:
    """Return the way of such a client to the network, for a client of one's own. Raises `UsageError` as it does."""
    read_in_linear_time()
    return _Transport(guard, client_context(ca_file))


def no_cookies() -> CookieJar:
    """Return a jar that takes nothing, for a client that several people share."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


def client_of(base_url: str, *, ca_file: str | None = None, **options: Any) -> httpx2.AsyncClient:
    """Return a client for a server that the user has named, wherever it is: through the proxy that the environment
    names, unless it is on this machine. `options` are those of `httpx2.AsyncClient`. Raises `UsageError` for a
    `ca_file` or a proxy that cannot be used."""
    host = urlsplit(base_url).hostname or ""
    is_here = host == "localhost" or host.startswith("127.") or host == "::1"
    try:
        return httpx2.AsyncClient(verify=client_context(ca_file), trust_env=not is_here, **options)
    except (ValueError, ImportError) as error:  # a scheme that is none, or one that needs a package
        raise UsageError(f"the proxy that the environment names cannot be used: {error}") from error


@functools.lru_cache(maxsize=8)
def client_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return what this machine trusts, and the roots of `ca_file`. Reading them takes 50 ms: it is kept. Raises
    `UsageError`."""
    context = httpx2.create_ssl_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"ca_file: {ca_file} holds no certificates that can be read: {error}") from error
    return context


class _Transport(httpx2.AsyncHTTPTransport):
    """The usual transport, whose pool gets its connections from a guard."""

    def __init__(self, guard: Guard, context: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE,
            keepalive_expiry=IDLE_S,
            network_backend=_Backend(guard),
        )


class _Backend(httpcore2.AnyIOBackend):
    """Connects to the addresses that the guard has checked."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            targets = await self._guard.lookup(host, port)
        except Unreachable as error:
            raise httpcore2.ConnectError(str(error)) from error
        for target in targets[:-1]:
            try:
                return await super().connect_tcp(target.address, target.port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        last = targets[-1]
        return await super().connect_tcp(last.address, last.port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *args: object, **options: object) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.UnsupportedProtocol("only names on the network can be reached")
