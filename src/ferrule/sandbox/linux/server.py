"""The fork server: for each request on its control socket it clones an init (`init.py`), which runs one command.

What confines all its commands is built once, in `start`, by the kind of server: `zygote.py` for a policy, `mother.py`
for a container. Nothing here may start a thread. `socket`, `signal`, `subprocess`, `typing`, `contextlib` and `pathlib`
are not imported: they cost memory and start time.
"""
# Messages are bare dicts (type-arg), because `typing` is not imported.

import _signal  # type: ignore[import-not-found]  # what `signal` wraps in enums
import _socket
import gc
import os
import resource
import select

from . import kernel
from .filesystem import HostSockets
from .init import Init
from .kernel import SIGKILL, StepError
from .messages import receive, send, send_failure

SHARES = ((resource.RLIMIT_NOFILE, 2), (resource.RLIMIT_SIGPENDING, 4))
"""Limits of which a command gets only a part."""


class InitServer:
    tick: int | None = None
    """Milliseconds between two calls of `look`; None for never."""

    def __init__(self, control: _socket.socket, settings: dict) -> None:  # type: ignore[type-arg]
        self.control = control
        self.settings = settings
        self.inits: dict[int, int] = {}  # pidfd -> pid
        self.sockets: HostSockets | None = None
        self.landlock = kernel.landlock_abi()
        self.ruleset: int | None = None
        self.mapped = False
        """True if commands have many ids."""
        self.way_out: list[int] = []  # what the client gets to serve, see `listeners.py`

    def run(self) -> None:
        """Serve until the other end of the control socket is closed."""
        self.settings["shares"] = keep_shares()
        try:
            self.start()
            gc.freeze()
            self.pass_out()
            send(self.control, b"R", bytes((self.landlock, self.mapped)))
            self.serve()
        except (OSError, StepError) as error:
            send_failure(self.control, error)
        self.end()

    def start(self) -> None:
        """Build what confines the commands. Raises `StepError`."""
        raise NotImplementedError

    def pass_out(self) -> None:
        """Give the way out to the client, and keep nothing of it that a command could inherit."""
        if self.way_out:
            send(self.control, b"L", fds=tuple(self.way_out))
        for fd in self.way_out:
            os.close(fd)
        self.way_out = []

    def look(self) -> None:
        """Do what has to be done again and again."""

    def init_gone(self) -> None:
        """Clean up after an init."""

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        while True:
            for fd, _ in poll.poll(self.tick):
                if fd in self.inits:
                    poll.unregister(fd)
                    os.waitpid(self.inits.pop(fd), 0)
                    os.close(fd)
                    self.init_gone()
                    continue
                request, _ = receive(self.control)
                if request is None:
                    return
                if "covers" in request:
                    poll.register(self.new_init(request["covers"]), select.POLLIN)
            self.look()

    def new_init(self, covers: list[tuple[str, bytes, bytes]]) -> int:
        channel, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
        pid = kernel.clone_process(self.settings["namespaces"])
        if pid == 0:
            self.become_init(channel, covers)
        pidfd = os.pidfd_open(pid)
        self.inits[pidfd] = pid
        send(self.control, b"C", fds=(other.fileno(), pidfd))
        channel.close()
        other.close()
        return pidfd

    def become_init(self, channel: _socket.socket, covers: list[tuple[str, bytes, bytes]]) -> None:
        """Run as an init. Never returns."""
        try:
            close_all_but({channel.fileno(), *self.kept_fds()})
            init = Init(channel, self.settings, self.ruleset, self.sockets)
            init.prepare(covers)
            if not select.select((channel,), (), (), 0)[0]:
                init.rehearse()
            init.run()
        except BaseException as error:  # noqa: BLE001  reported to the client, who raises it
            send_failure(channel, error)
        os._exit(0)

    def kept_fds(self) -> list[int]:
        """Return the descriptors that an init needs."""
        more = [self.ruleset] if self.ruleset is not None else []
        return [*more, *([self.sockets.table] if self.sockets else [])]

    def end(self) -> None:
        """End every command once the client is gone."""
        for pidfd, pid in self.inits.items():
            _signal.pidfd_send_signal(pidfd, SIGKILL)
            os.waitpid(pid, 0)
        self.inits.clear()


def keep_shares() -> list[tuple[int, int, int]]:
    """Return the limits of commands on what the kernel counts for a user as a whole, and take all of it for ourselves.

    Else commands could use up the user's descriptors that are on their way between processes: we could send none.
    """
    shares = []
    for kind, part in SHARES:
        soft, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            shares.append((kind, min(soft, hard // part), hard // part))
            resource.setrlimit(kind, (hard, hard))
    return shares


def close_all_but(kept: set[int]) -> None:
    """Close all descriptors but these and the standard ones."""
    keep = sorted({0, 1, 2, *kept})
    for low, high in zip(keep, (*keep[1:], 1 << 20), strict=True):
        os.closerange(low + 1, high)
