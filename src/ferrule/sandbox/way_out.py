"""The way out of a sandbox or container whose network has only `lo`: what is passed out of it, and who serves that."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Listeners(msgspec.Struct, frozen=True):
    """The way out of one network namespace: sockets that listen inside it, and the files shown inside, open to be
    changed, in the order in which they were given. Both belong to the receiver."""

    proxy: socket.socket
    https: socket.socket
    http: socket.socket
    files: tuple[int, ...] = ()

    @staticmethod
    def of(fds: Sequence[int]) -> "Listeners":
        """Take the descriptors of a helper's message."""
        proxy, https, http = (socket.socket(fileno=fd) for fd in fds[:3])
        return Listeners(proxy, https, http, tuple(fds[3:]))

    def close(self) -> None:
        """Close everything."""
        for one in (self.proxy, self.https, self.http):
            one.close()
        for fd in self.files:
            os.close(fd)


class WayOut(Protocol):
    """Serves the way out of network namespaces."""

    @property
    def files(self) -> Sequence[tuple[str, bytes]]:
        """Paths, and what is shown there inside."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables by which programs find the way out."""
        ...

    def serve(self, listeners: Listeners) -> None:
        """Begin to serve one more namespace, and take its listeners. Must not block."""
        ...

    def stop(self, listeners: Listeners) -> None:
        """End that, because the namespace ends, and close them. Must not block."""
        ...


class SessionWay(WayOut, Protocol):
    """The way out of one sandbox, which closes it."""

    def mark(self) -> int:
        """Return a place in the order of refusals: that of now."""
        ...

    def remarks(self, since: int) -> Sequence[str]:
        """Return what was refused since a mark: sentences for the model."""
        ...

    async def aclose(self) -> None:
        """End all connections."""
        ...


def wire_way_out(way_out: WayOut | None) -> list[tuple[bytes, bytes]] | None:
    """Return what a helper builds of a way out; None where there is none."""
    return None if way_out is None else [(os.fsencode(path), content) for path, content in way_out.files]
