"""The way out of a session's commands: to the names of a list, and as far as whoever decides lets it.

Sessions whose commands share a container share its network: each decides about what asks at its own proxy's address.

Imported when a list is enforced: it brings the engine that serves connections.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ferrule.egress.addresses import Target
from ferrule.egress.authority import SYSTEM_ROOTS
from ferrule.egress.egress import BUNDLE_PATH, BUNDLE_VARIABLES, HOSTS_PATH, PROXY_VARIABLES, Egress
from ferrule.egress.guard import Guard, Refusal, Refused
from ferrule.egress.names import BadDomain, DomainNames, read_host
from ferrule.sandbox.linux.root import HOST_NAME
from ferrule.sandbox.plan import Reach, not_allowed
from ferrule.sandbox.way_out import Listeners

CLOSED = "{} was not reached: the session has ended."
MAX_REMARKS = 5
"""Refusals told with one command's output: further ones tell nothing new."""
MAX_KEPT = 100
"""Refusals kept for commands that still run."""


class Decider(Protocol):
    """Decides about each connection of commands."""

    @property
    def active(self) -> bool:
        """True while commands run whose connections these may be."""
        ...

    def names(self) -> Iterable[str]:
        """Return hosts that are allowed beside the list."""
        ...

    async def decide(self, host: str, port: int, listed: bool) -> str | None:
        """Return None if commands may reach a host, else why not, for the model. `listed`: the list allows it."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """Hear of each refusal, whatever its reason."""
        ...

    def questions(self) -> Sequence[str]:
        """Return what connections wait for: sentences for the model."""
        ...


class LocalGuard(Guard):
    """Asks about each connection whether it may be made, also to a name that the list does not have."""

    def __init__(self, reach: Reach, decider: Decider) -> None:
        # These get addresses, by which programs that know no proxy find them.
        known = dict.fromkeys((*reach.names.entries, *_read(decider.names())))
        super().__init__(DomainNames(tuple(known)), hosts=dict(reach.hosts))
        self._names = reach.names
        self._decider = decider
        self._any_name = Guard(None, hosts=dict(reach.hosts))
        self._any_name.listeners = self.listeners

    @property
    def active(self) -> bool:
        """See `Decider.active`."""
        return self._decider.active

    async def lookup(self, host: str, port: int) -> tuple[Target, ...]:
        """See `Guard.lookup`."""
        name = self._any_name.check(host, port)
        why = await self._decider.decide(name, port, self._names.allows(name))
        if why is not None:
            raise self.refused(name, port, why)
        return await self._any_name.lookup(name, port)


class SharedGuard(Guard):
    """Decides about connections that do not tell whose they are: the session does whose command began last."""

    def __init__(self, reach: Reach, allowed: DomainNames | None) -> None:
        super().__init__(allowed, hosts=dict(reach.hosts))
        self.guards: list[LocalGuard] = []

    async def lookup(self, host: str, port: int) -> tuple[Target, ...]:
        """See `Guard.lookup`."""
        *others, asked = self._concerned() or [self]
        if asked is self:
            raise self.refused(host, port, CLOSED.format(host))
        try:
            return await asked.lookup(host, port)
        except Refused as error:
            for other in others:
                other.refused(host, port, str(error))
            raise

    def refused(self, host: str, port: int, text: str) -> Refused:
        """See `Guard.refused`. All hear of it whose commands run."""
        for guard in self._concerned():
            guard.refused(host, port, text)
        return Refused(text)

    def _concerned(self) -> list[Guard]:
        return [guard for guard in self.guards if guard.active] or [*self.guards[-1:]]


class Outlet:
    """The way out of one network namespace. Raises `UsageError` for a `ca_file` that cannot be read.

    `contained`: of a container, where what is shown is made; in a sandbox on this machine only what is there can be
    shown anew.
    """

    def __init__(self, reach: Reach, allowed: DomainNames | None, *, contained: bool = False) -> None:
        self.shared = SharedGuard(reach, allowed)
        self.egress = Egress(self.shared, ca_file=reach.ca_file, host_name=HOST_NAME if contained else "")
        self._contained = contained
        self._bundle = next(filter(os.path.exists, SYSTEM_ROOTS), None)
        self._ca_file = reach.ca_file

    @property
    def files(self) -> Sequence[tuple[str, bytes]]:
        """See `WayOut.files`."""
        return self.egress.files if self._contained else [*self._shown_anew()]

    def _shown_anew(self) -> Iterator[tuple[str, bytes]]:
        for path, content in self.egress.files:
            if path == HOSTS_PATH and os.path.exists(path):
                yield os.path.realpath(path), content + _own_names(content.decode())
            elif path == BUNDLE_PATH and self._bundle is not None:
                yield os.path.realpath(self._bundle), content

    @property
    def environment(self) -> Mapping[str, str]:
        """See `WayOut.environment`."""
        found = self.egress.environment
        place = self._bundle or self._ca_file
        if self._contained or place is None:
            return found
        return {name: place if name in BUNDLE_VARIABLES else value for name, value in found.items()}


class LocalWay:
    """Serves the commands of one session, whose sandbox closes it. Raises `UsageError` for a `ca_file` that cannot be
    read. `contained`: they run in a container. `first` is the way of the session whose container they share."""

    def __init__(
        self, reach: Reach, decider: Decider, *, contained: bool = False, first: "LocalWay | None" = None
    ) -> None:
        self._guard = LocalGuard(reach, decider)
        self._guard.listeners += [self._note, decider.refused]
        self._decider = decider
        self._refusals: deque[tuple[int, str]] = deque(maxlen=MAX_KEPT)
        self._count = 0
        self._owns_outlet = first is None
        allowed = self._guard.allowed
        self._outlet: Outlet = Outlet(reach, allowed, contained=contained) if first is None else first._outlet
        self._outlet.shared.guards.append(self._guard)
        self._proxy = self._outlet.egress.add(self._guard)

    @property
    def files(self) -> Sequence[tuple[str, bytes]]:
        """See `WayOut.files`."""
        return self._outlet.files

    @property
    def environment(self) -> Mapping[str, str]:
        """See `WayOut.environment`."""
        return {**self._outlet.environment, **dict.fromkeys(PROXY_VARIABLES, self._proxy)}

    def serve(self, listeners: Listeners) -> None:
        """See `WayOut.serve`."""
        self._outlet.egress.serve(listeners)

    def stop(self, listeners: Listeners) -> None:
        """See `WayOut.stop`."""
        self._outlet.egress.stop(listeners)

    async def aclose(self) -> None:
        """End all connections; those of a container that is shared go on."""
        if self._guard in self._outlet.shared.guards:
            self._outlet.shared.guards.remove(self._guard)
        self._outlet.egress.remove(self._guard)
        if self._owns_outlet:
            await self._outlet.egress.aclose()

    def mark(self) -> int:
        """Return a place in the order of refusals: that of now."""
        return self._count

    def remarks(self, since: int) -> list[str]:
        """Return what was refused since a mark, and what is still asked: sentences for the model."""
        told = dict.fromkeys(text for number, text in self._refusals if number >= since)
        return [*[*told][:MAX_REMARKS], *self._decider.questions()]

    def _note(self, refusal: Refusal) -> None:
        self._refusals.append((self._count, refusal.text))
        self._count += 1


class AskingNobody:
    """Tells the user of each refusal by `report`, and asks nothing."""

    active = True

    def __init__(self, report: Callable[[str], None] | None) -> None:
        self._report = report

    def names(self) -> Iterable[str]:
        """Return nothing: only the list allows."""
        return ()

    def refused(self, refusal: Refusal) -> None:
        """Tell the user."""
        if self._report is not None:
            self._report(refusal.text)

    def questions(self) -> Sequence[str]:
        """Return nothing: nobody is asked."""
        return ()


class ListOnly(AskingNobody):
    """Lets through what the list has."""

    def __init__(self, names: DomainNames, report: Callable[[str], None] | None) -> None:
        super().__init__(report)
        self._names = names

    async def decide(self, host: str, port: int, listed: bool) -> str | None:
        """See `Decider.decide`."""
        return None if listed else not_allowed(host, self._names)


def _read(hosts: Iterable[str]) -> Iterator[str]:
    """Yield the hosts that are names."""
    for host in hosts:
        with suppress(BadDomain):
            yield read_host(host)


def _own_names(ours: str) -> bytes:
    """Return the names that the machine gives its loopback, such as its own, but for those that ours have."""
    taken = set(ours.split())
    lines = [line.partition("#")[0].split() for line in Path(HOSTS_PATH).read_text("utf-8", "replace").splitlines()]
    named = ((words[0], [name for name in words[1:] if name not in taken]) for words in lines if words)
    kept = (f"{address} {' '.join(names)}\n" for address, names in named if names and address.startswith("127."))
    return "".join(kept).encode()
