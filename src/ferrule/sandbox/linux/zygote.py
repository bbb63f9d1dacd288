"""The fork server that confines the commands of one policy. Imports only its neighbours and the standard library.

It owns the user, mount, network and IPC namespaces of the policy. Without namespaces its inits are subreapers.
`pool._settings` and `launcher.request_of` fill the messages to it and to its inits.
"""
# Messages are bare dicts (type-arg), because `typing` is not imported.

import _socket
import errno
import fcntl
import os
import struct

from . import kernel
from .filesystem import DEVICES, HostSockets, build_tree, show_text
from .kernel import SIGKILL, StepError
from .listeners import listen
from .processes import children, descendants, signal_quietly
from .server import InitServer
from .socket_search import SocketSearch, read_all

LANDLOCK_THAT_TRUNCATES = 3
"""Earlier versions let any file be truncated, which is too weak without namespaces."""


class Zygote(InitServer):
    def __init__(
        self,
        control: _socket.socket,
        settings: dict,  # type: ignore[type-arg]
        fds: list[int],
    ) -> None:
        super().__init__(control, settings)
        self.folder, self.lock = fds  # of the placeholders' records, opened on the host's mount, where it is writable

    def start(self) -> None:
        settings = self.settings
        roots, network = settings["roots"], settings["network"]
        if settings["namespaces"]:
            search = SocketSearch(roots) if roots else None
            if settings["cover_sockets"]:
                self.sockets = HostSockets(settings["sockets"])
            kernel.enter_namespaces(network)
            build_tree(roots)
            if settings["way_out"] is not None:
                self.way_out = [*listen(), *(show_text(*shown) for shown in settings["way_out"])]
            if self.sockets:
                self.sockets.cover()
                if search:
                    self.sockets.cover_present(search)
            kernel.drop_bounding_set()
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        else:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            if not self.landlock:
                raise StepError(0, "this kernel has no Landlock, or it was not enabled at boot (lsm=)")
            if self.landlock < LANDLOCK_THAT_TRUNCATES:
                needed = f"{LANDLOCK_THAT_TRUNCATES} (Linux 6.2) is needed"
                raise StepError(0, f"this kernel has version {self.landlock} of Landlock; {needed}")
        self.ruleset = kernel.landlock_ruleset((*roots, b"/dev/shm", b"/dev/pts"), (*DEVICES, b"/dev/ptmx"))
        if settings["namespaces"]:
            # Inits inherit it, because loading it takes half a millisecond.
            kernel.load_filter(settings["filter"])

    def kept_fds(self) -> list[int]:
        """The lock has to live as long as the last process that relies on it."""
        return [self.lock, *super().kept_fds()]

    def init_gone(self) -> None:
        """Without namespaces, end the processes of an init that was killed: they become our children."""
        if not self.settings["namespaces"]:
            for pid in set(children(os.getpid())) - set(self.inits.values()):
                for orphan in (pid, *descendants(pid)):
                    signal_quietly(os.kill, orphan, SIGKILL)
                os.waitpid(pid, 0)

    def end(self) -> None:
        """End every command, then remove the placeholders."""
        super().end()
        self.init_gone()
        for record in self.settings["records"]:
            self.remove_placeholders(record)

    def remove_placeholders(self, record: str) -> None:
        """See `placeholders.remove_placeholders`."""
        place = int(record, 16)
        try:
            for kind in (fcntl.F_UNLCK, fcntl.F_WRLCK):
                fcntl.fcntl(self.lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, place, 1, 0))
            fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        except OSError:
            return  # another process runs commands there, or has removed them
        busy = False
        for path in read_all(fd).split(b"\0")[:-1]:
            try:
                if not os.lstat(path).st_mode & 0o222:  # a writable one is somebody's by now
                    os.rmdir(path)
            except OSError as error:
                busy = busy or error.errno == errno.EBUSY
        if not busy:
            os.unlink(record, dir_fd=self.folder)


def begin(control: _socket.socket, settings: dict, fds: list[int]) -> None:  # type: ignore[type-arg]
    """Be the zygote of a policy, until the other end of the control socket is closed."""
    Zygote(control, settings, fds).run()
