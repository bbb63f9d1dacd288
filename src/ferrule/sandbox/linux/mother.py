"""The mother: one process that forks the fork servers of one kind, of policies (`zygote.py`) or of containers
(`holder.py`). Imports only its neighbours and the standard library.

A server lives as long as its control socket has another end; the death of the mother does not concern it. A fork is
several times faster than a new interpreter, and shares its memory.

To the mother goes one message a server: its settings, with its control socket and what else it takes. The answer, `C`,
holds the server's number and a pidfd.
"""
# Messages are bare dicts (type-arg), because `typing` is not imported.

import _socket
import gc
import os
import select
import struct

from . import kernel
from .messages import receive, send, send_failure
from .server import close_all_but

NAME = b"ferrule"
"""What lists of processes show."""


class Mother:
    def __init__(self, control: _socket.socket, begin) -> None:  # type: ignore[no-untyped-def]  # `Callable` is in `typing`
        self.control = control
        self.begin = begin
        self.servers: dict[int, int] = {}  # pidfd -> pid

    def serve(self) -> None:
        """Fork servers until the client is gone."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd in self.servers:
                    poll.unregister(fd)
                    os.waitpid(self.servers.pop(fd), 0)
                    os.close(fd)
                    continue
                settings, fds = receive(self.control)
                if settings is None:
                    return
                poll.register(self.bear(settings, fds), select.POLLIN)

    def bear(self, settings: dict, fds: list[int]) -> int:  # type: ignore[type-arg]
        pid = os.fork()
        if pid == 0:
            self.become_server(settings, fds)
        for fd in fds:
            os.close(fd)
        pidfd = os.pidfd_open(pid)
        self.servers[pidfd] = pid
        send(self.control, b"C", struct.pack("i", pid), (pidfd,))
        return pidfd

    def become_server(self, settings: dict, fds: list[int]) -> None:  # type: ignore[type-arg]
        """Run as a server. Never returns."""
        close_all_but(set(fds))
        number, *more = fds
        control = _socket.socket(fileno=number)
        try:
            self.begin(control, settings, more)
        except BaseException as error:  # noqa: BLE001  reported to the client, who raises it
            send_failure(control, error)
        os._exit(0)


def main(number: int, kind: str) -> None:
    """Serve the control socket with this descriptor until its other end is closed."""
    os.set_inheritable(number, False)
    kernel.take_name(NAME)
    if kind == "holder":
        from .holder import begin
    else:
        from .zygote import begin
    mother = Mother(_socket.socket(fileno=number), begin)
    gc.freeze()
    mother.serve()
