"""One open way out: what serves a container's connections, and how programs in it find that."""

import asyncio
import errno
import itertools
import logging
import resource
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self

import msgspec

from ferrule.egress.authority import Authority, roots
from ferrule.egress.doors import Ways, serve_http, serve_https, serve_proxy
from ferrule.egress.guard import Guard, Refusal
from ferrule.egress.header_lines import read_in_linear_time
from ferrule.egress.pump import Pump
from ferrule.egress.secrets import Secret, Secrets

log = logging.getLogger("ferrule.egress")

PROXY_ADDRESS, PROXY_PORT = "127.0.0.1", 3128
PROXY = f"http://{PROXY_ADDRESS}:{PROXY_PORT}"
"""Where the proxy listens, inside, beside other addresses of loopback."""
PROXY_NETWORK, NAME_NETWORK = 65, 64
"""Second bytes of loopback's addresses: for further proxies, and for those that stand for hosts."""
HOSTS_PATH = "/etc/hosts"
BUNDLE_PATH = "/etc/ssl/certs/ca-certificates.crt"
"""Where most programs of Linux look for roots; the others are told by variables."""
BUNDLE_VARIABLES = (
    "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT",
    "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
)  # fmt: skip
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
LOCAL = "localhost,127.0.0.1,::1"
OTHER_VARIABLES = {"NO_PROXY": LOCAL, "no_proxy": LOCAL, "NODE_USE_ENV_PROXY": "1"}
VARIABLES = frozenset({*PROXY_VARIABLES, *OTHER_VARIABLES, *BUNDLE_VARIABLES})
"""Names that no secret can have."""
MAX_CONNECTIONS, SHARE = 256, 16
"""At once, of one container: more than programs open; and that part of the descriptors that this process may have, as
each connection takes two, and six while nobody reads. Further ones wait, and take the place of silent ones."""
SILENT_S, LEAST_SILENT_S, LOOK_S = 5.0, 0.5, 0.5
"""Seconds without a byte after which a connection has to go where there are too many, at first and after some looks
that found none, and between two looks."""
LAST_SENT, LAST_RECEIVED = 44, 52
"""Places in `struct tcp_info` (linux/tcp.h) of the milliseconds since data was sent and received."""
MAX_TOLD = 100
"""Refusals that are kept until somebody asks."""
BREATH_S = 0.5
"""Until the next try when the process has no descriptor left."""
SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listening(Protocol):
    """The listening sockets of one network namespace."""

    @property
    def proxy(self) -> socket.socket: ...
    @property
    def https(self) -> socket.socket: ...
    @property
    def http(self) -> socket.socket: ...
    def close(self) -> None:
        """Close them."""
        ...


Door = Callable[[Ways, socket.socket], Coroutine[Any, Any, None]]


class Egress:
    """The way out of one container or session. Close it to end its connections. Raises `BadSecret`, and `UsageError`
    for a `ca_file` that cannot be read, or if secrets need a package that is missing."""

    def __init__(
        self, guard: Guard, secrets: Iterable[Secret] = (), *, ca_file: str | None = None, host_name: str = ""
    ) -> None:
        """`host_name` is the name of the namespace's machine, if it has one of its own."""
        read_in_linear_time()
        self._refusals: deque[Refusal] = deque(maxlen=MAX_TOLD)
        guard.listeners.append(self._refusals.append)
        names = guard.allowed.exact if guard.allowed is not None else ()
        own = Secrets(secrets)
        self._names = dict(zip(_addresses(NAME_NETWORK), names, strict=False))
        self._authority = Authority() if own else None
        self._pump = Pump()
        self._ways = Ways(guard, self._names, own, self._pump, self._authority, ca_file)
        self._bundle = roots(ca_file) + (self._authority.pem if self._authority else b"")
        self._changes_roots = bool(own) or ca_file is not None
        self._host_name = host_name
        self._others: dict[str, Ways] = {}
        self._proxies = itertools.chain([PROXY_ADDRESS], _addresses(PROXY_NETWORK))
        self._serving: dict[int, tuple[Listening, list[asyncio.Task[None]]]] = {}
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._one_ended = asyncio.Event()
        self._patience = SILENT_S
        self._most = _most(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    @property
    def files(self) -> Sequence[tuple[str, bytes]]:
        """Paths inside, and what is shown there."""
        shown = [(HOSTS_PATH, self.hosts_file.encode())]
        return [*shown, (BUNDLE_PATH, self._bundle)] if self._changes_roots else shown

    @property
    def hosts_file(self) -> str:
        """Addresses of the allowed names, for programs that know no proxy."""
        lines = [f"127.0.0.1 localhost {self._host_name}".rstrip(), "::1 localhost ip6-localhost ip6-loopback"]
        return "\n".join([*lines, *(f"{address} {name}" for address, name in self._names.items()), ""])

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables by which programs find the proxy and the roots, and the placeholders of secrets."""
        found = {**dict.fromkeys(PROXY_VARIABLES, PROXY), **OTHER_VARIABLES}
        if self._changes_roots:
            found |= dict.fromkeys(BUNDLE_VARIABLES, BUNDLE_PATH)
        return {**found, **self._ways.secrets.environment}

    def add(self, guard: Guard) -> str:
        """Let a guard of its own decide for those who ask at an address of the proxy. Returns the proxy's URL."""
        address = next(self._proxies)
        self._others[address] = msgspec.structs.replace(self._ways, guard=guard)
        return f"http://{address}:{PROXY_PORT}"

    def remove(self, guard: Guard) -> None:
        """Let that guard decide no more."""
        self._others = {address: ways for address, ways in self._others.items() if ways.guard is not guard}

    def take_refusals(self) -> list[str]:
        """Return, once, what was refused: sentences for the model, none twice."""
        told = dict.fromkeys(refusal.text for refusal in self._refusals)
        self._refusals.clear()
        return [*told]

    def serve(self, listeners: Listening) -> None:
        """Begin to serve one more network namespace."""
        doors = ((listeners.proxy, serve_proxy), (listeners.https, serve_https), (listeners.http, serve_http))
        self._serving[id(listeners)] = listeners, [asyncio.create_task(self._accept(*door)) for door in doors]

    def stop(self, listeners: Listening) -> None:
        """End that, because the namespace ends."""
        _, tasks = self._serving.pop(id(listeners), (None, ()))
        for task in tasks:
            task.cancel()
        listeners.close()

    async def aclose(self) -> None:
        """End all connections."""
        tasks = [task for _, serving in self._serving.values() for task in serving]
        self._serving.clear()
        tasks += self._connections
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pump.aclose()

    async def _accept(self, listening: socket.socket, door: Door) -> None:
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in SHORT_OF:
                    return
                await asyncio.sleep(BREATH_S)
                continue
            try:
                await self._wait_for_room()
            except BaseException:
                connection.close()
                raise
            task = asyncio.create_task(self._served(door, connection))
            self._connections[task] = connection
            task.add_done_callback(self._ended)

    async def _wait_for_room(self) -> None:
        """Wait until there are few enough connections. Silent ones end: whoever holds them keeps all others out."""
        if len(self._connections) < self._most:
            self._patience = SILENT_S
        while len(self._connections) >= self._most:
            silent, task = max(((_silent_s(one), task) for task, one in self._connections.items()), key=_first)
            if silent >= self._patience:
                task.cancel()
            else:
                self._patience = max(self._patience / 2, LEAST_SILENT_S)
            self._one_ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._one_ended.wait()

    async def _served(self, door: Door, connection: socket.socket) -> None:
        with connection:
            try:
                await door(self._others.get(connection.getsockname()[0], self._ways), connection)
            except OSError as error:
                log.debug("a connection of a container broke off: %s", error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._connections[task]
        self._one_ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection of a container failed", exc_info=error)


def _most(descriptors: int) -> int:
    """Return how many connections there may be in a process with so many descriptors."""
    return MAX_CONNECTIONS if descriptors < 0 else min(MAX_CONNECTIONS, max(descriptors // SHARE, 1))


def _first(pair: tuple[float, object]) -> float:
    return pair[0]


def _silent_s(connection: socket.socket) -> float:
    """Return the seconds since the last byte on a connection."""
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_RECEIVED + 4)
    except OSError:  # it was closed
        return 0.0
    since = [int.from_bytes(told[at : at + 4], sys.byteorder) for at in (LAST_SENT, LAST_RECEIVED)]
    return min(since) / 1000


def _addresses(network: int) -> Iterator[str]:
    """Yield addresses of loopback that nothing else uses."""
    for number in range(1, 1 << 16):
        yield f"127.{network}.{number >> 8}.{number & 255}"
