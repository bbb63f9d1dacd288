"""Decide who may be reached outside: the one place that does.

A name is looked up once. Each of its addresses has to be public, and the connection goes to an address that was
checked: a name server that answers differently the next time is not asked again.
"""

import asyncio
import functools
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ferrule.egress.addresses import Target, is_own, is_public, read_hosts
from ferrule.egress.names import MAX_NAME, BadDomain, DomainNames, read_host
from ferrule.protocol.errors import FerruleError

log = logging.getLogger("ferrule.egress")

PORTS = frozenset({80, 443})
LOOKUP_S = 10.0
"""A lookup takes milliseconds; one that takes longer than this has failed."""
CONNECT_S = 10.0
"""For all addresses of a name together: a host that does not answer by then is down."""
MAX_LOOKUPS, MAX_OWN_LOOKUPS = 32, 8
"""At once, in all guards, and in one of them: each takes a thread for as long as a name server lets it wait, and a
command can ask for any number of names below one with `*`."""
MAX_LOGGED, LOGGED_S = 100, 60.0
"""Refusals of one guard in the log, in so many seconds: a program can be refused a thousand times in one."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, or raises `OSError`."""


class Refusal(msgspec.Struct, frozen=True):
    """Why somebody was not reached: a sentence for the model."""

    host: str
    port: int
    text: str


class Refused(FerruleError):
    """The host may not be reached: one sentence for the model."""


class Unreachable(FerruleError):
    """The host may be reached, but does not answer: one sentence."""


class Guard:
    """Says who may be reached, and connects. `allowed` None is any public name. `hosts` maps `"name:port"` to
    `"address:port"`, which may be private; it permits nothing. `report` is told of each refusal. Raises `BadDomain` for
    a table that is wrong."""

    def __init__(
        self,
        allowed: DomainNames | None,
        *,
        hosts: Mapping[str, str] | None = None,
        resolve: Resolve | None = None,
        report: Callable[[Refusal], None] | None = None,
    ) -> None:
        self.allowed = allowed
        self._hosts = read_hosts(hosts or {})
        self._resolve = resolve or system_addresses
        self._lookups = asyncio.Semaphore(MAX_OWN_LOOKUPS)
        self._logged_since, self._logged = -LOGGED_S, 0
        self.listeners = [] if report is None else [report]
        """Are told of each refusal."""

    def check(self, host: str, port: int) -> str:
        """Return the name of a host as DNS compares it, if it may be asked for. Raises `Refused`."""
        try:
            name = read_host(host)
        except BadDomain as error:
            raise self.refused(host, port, f"{error}.") from error
        if self.allowed is not None and not self.allowed.allows(name):
            raise self.refused(name, port, f"{name} is not an allowed domain. Allowed: {self.allowed}.")
        if port not in PORTS and (name, port) not in self._hosts:
            raise self.refused(name, port, f"Port {port} of {name} cannot be reached: only 80 and 443 are open.")
        return name

    def refused(self, host: str, port: int, text: str) -> Refused:
        """Tell a refusal to whoever wants to know, and return it as an error."""
        self._log(text)
        shown = host if len(host) <= MAX_NAME else f"{host[:MAX_NAME]}..."
        for listener in self.listeners:
            listener(Refusal(shown, port, text))
        return Refused(text)

    def _log(self, text: str) -> None:
        """Log a refusal, unless that would fill the log."""
        now = time.monotonic()
        if now - self._logged_since >= LOGGED_S:
            self._logged_since, self._logged = now, 0
        self._logged += 1
        if self._logged <= MAX_LOGGED:
            log.info("refused: %s", text)
        elif self._logged == MAX_LOGGED + 1:
            log.info("more refusals than %d in a minute are not logged", MAX_LOGGED)

    async def lookup(self, host: str, port: int) -> tuple[Target, ...]:
        """Return where a host can be reached. Raises `Refused`, and `Unreachable` if there is no such host."""
        name = self.check(host, port)
        if mapped := self._hosts.get((name, port)):
            return (mapped,)
        try:
            async with asyncio.timeout(LOOKUP_S):
                found = await self._look_up(name, port)
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{name} has no address.") from error
        if not found:
            raise Unreachable(f"{name} has no address.")
        self.check_addresses(name, port, found)
        return tuple(Target(address, port) for address in dict.fromkeys(found))

    def check_addresses(self, name: str, port: int, found: Sequence[str]) -> None:
        """Look at the addresses of a name. Raises `Refused`."""
        if not all(map(is_public, found)):
            raise self.refused(name, port, f"{name} leads to an address that is not public, so it cannot be reached.")
        if any(map(is_own, found)):
            raise self.refused(name, port, f"{name} leads to this machine itself, so it cannot be reached.")

    async def _look_up(self, name: str, port: int) -> Sequence[str]:
        """Look a name up. A lookup that nobody waits for any more still counts: its thread goes on."""
        await self._lookups.acquire()
        found = asyncio.ensure_future(self._resolve(name, port))
        found.add_done_callback(lambda _: self._lookups.release())
        return await asyncio.shield(found)

    async def connect(self, host: str, port: int) -> socket.socket:
        """Return a connected socket that does not block. Raises `Refused` and `Unreachable`."""
        targets = await self.lookup(host, port)
        try:
            async with asyncio.timeout(CONNECT_S):
                return await _first(targets)
        except OSError as error:
            raise Unreachable(f"{host} does not answer on port {port}.") from error


async def _first(targets: Sequence[Target]) -> socket.socket:
    """Connect to the first that answers. Raises `OSError`."""
    for target in targets[:-1]:
        try:
            async with asyncio.timeout(CONNECT_S / len(targets)):
                return await _connected(target)
        except OSError:
            continue
    return await _connected(targets[-1])


async def _connected(target: Target) -> socket.socket:
    family = socket.AF_INET6 if ":" in target.address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connection, (target.address, target.port))
    except BaseException:
        connection.close()
        raise
    return connection


async def system_addresses(name: str, port: int) -> Sequence[str]:
    """Return the addresses of a name as this machine looks it up. Raises `OSError`."""
    found = await asyncio.get_running_loop().run_in_executor(_lookups(), _looked_up, name, port)
    return [str(address[4][0]) for address in found]


def _looked_up(name: str, port: int) -> "list[tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]]":
    absolute = f"{name}." if "." in name else name  # else domains of this machine's own network are tried below it
    return socket.getaddrinfo(absolute, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]


@functools.cache
def _lookups() -> ThreadPoolExecutor:
    """Threads of their own: a name server that does not answer must not take those that everything else runs in."""
    return ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="ferrule-lookup")
