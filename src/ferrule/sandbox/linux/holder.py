"""The holder: the fork server of one container. It owns the namespaces, has a root of its own (`private_root.py`), and
clones an init for each command. Imports only its neighbours and the standard library.

With its control socket come the `cgroup.procs` files that it enters.
"""
# Messages are bare dicts (type-arg), because `typing` is not imported.

import _socket
import os

from . import kernel
from .filesystem import DEVICES, HostSockets, closed_kernel_files, cover_socket, show_text
from .id_map import ACCESS, CAPABILITIES, FullMap, SubordinateMap
from .kernel import StepError
from .listeners import listen
from .messages import send
from .private_root import Trees, build_root
from .processes import children, signal_quietly
from .server import InitServer
from .socket_search import SocketSearch
from .watch import TICK, Watch, end_segments


class Holder(InitServer):
    def __init__(self, control: _socket.socket, settings: dict) -> None:  # type: ignore[type-arg]
        super().__init__(control, settings)
        self.watch = Watch(settings["memory_bytes"], settings["grouped"], settings["disk_bytes"], settings["watched"])

    def look(self) -> None:
        """End what uses too much, and look again soon if commands run."""
        inits = list(self.inits.values())
        running = [init for init in inits if children(init)]
        self.tick = TICK if running else None
        if not running:
            return
        end_segments(self.watch.memory_bytes)
        # The reason comes first, so that it is known when the command's end is.
        largest = self.watch.too_large(running)
        if largest is not None:
            send(self.control, b"W", b"memory")
            signal_quietly(os.kill, largest, kernel.SIGKILL)
        if self.watch.disk_used_up():
            send(self.control, b"W", b"disk")
            for init in running:
                signal_quietly(os.kill, init, kernel.SIGUSR1)  # it kills its command with all descendants

    def start(self) -> None:
        settings = self.settings
        os.umask(0o022)
        root = os.getuid() == 0
        binds = settings["binds"]  # by source, and theirs are the only sockets that others may have made
        search = SocketSearch([*binds]) if binds else None
        in_place = tuple(source + b"/" for source, target in binds.items() if source == target)
        if in_place:
            self.sockets = HostSockets([], in_place)
        plan = settings["root"]
        ids = self.many_ids(plan) if settings["map"] or settings["subordinate"] else None
        if plan["image"]:
            self.watch.folders.append(b"/proc/self/fd/%d" % changed_folder(plan["image"], ids.trees if ids else {}))
        more = kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
        if ids:
            ids.enter(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNET | more)
            kernel.raise_loopback()
        else:
            kernel.enter_namespaces(network=False, more=more, ids=settings["ids"])
        kernel.bound_resources()
        kernel.set_host_name(settings["host_name"])
        way_out = settings["way_out"]
        build_root(plan, [path for path, _ in way_out or ()], ids.trees if ids else {})
        if way_out is not None:
            self.way_out = [*listen(), *(show_text(os.path.realpath(path), text) for path, text in way_out)]
        if search:
            cover_sockets(search, binds)
        settings["hidden"] = closed_kernel_files(root)
        if settings["user"]:
            if settings["subordinate"]:  # whoever runs us goes on using it, too; nobody else reaches it
                os.chmod(b"/mnt/data", 0o777)
            else:
                os.chown(b"/mnt/data", *settings["user"][:2])
        kernel.drop_bounding_set(settings["capabilities"])
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        writable = (*settings["writable"], b"/dev/shm", b"/dev/pts")
        self.ruleset = kernel.landlock_ruleset(writable, (*DEVICES, b"/dev/ptmx"), sockets=not binds)
        kernel.load_filter(settings["filter"])

    def many_ids(self, plan: dict) -> FullMap | SubordinateMap | None:  # type: ignore[type-arg]
        """Prepare the map of many ids; without it commands have one, and cannot become an image's user."""
        settings = self.settings
        owner = settings["user"][:2] if settings["user"] else (0, 0)
        try:
            if settings["subordinate"]:
                ids: FullMap | SubordinateMap = SubordinateMap(*settings["subordinate"])
            else:
                first, count = settings["map"]
                ids = FullMap(first, count, owner, plan)
        except (OSError, StepError):
            settings["user"] = None
            return None
        if settings["keeps_owners"]:  # of a folder of the user's: the image's files can be written, none given away
            settings["capabilities"] = ACCESS
            settings["user"] = None
            return ids
        self.mapped = True
        settings["capabilities"] = CAPABILITIES
        settings["filter"] = settings["mapped_filter"]
        return ids


def changed_folder(image: tuple[bytes, bytes, bytes], trees: Trees) -> int:
    """Open the folder of the host with what commands change of an image, seen through the map."""
    base, upper, _ = image
    if not trees:
        return os.open(upper or base, os.O_PATH | os.O_CLOEXEC)
    if not upper:
        return trees.pop(b"changed")
    return os.open(os.path.basename(upper), os.O_PATH | os.O_CLOEXEC, dir_fd=trees[b"layer"])


def cover_sockets(search: SocketSearch, binds: dict[bytes, bytes]) -> None:
    """Cover the sockets of host programs in folders that are shown inside."""
    paths = search.found()
    if paths is None:
        raise StepError(0, "the search for sockets did not end")
    for path in paths:
        for source, target in binds.items():
            if path.startswith(source + b"/"):
                cover_socket(target + path[len(source) :])


def begin(control: _socket.socket, settings: dict, fds: list[int]) -> None:  # type: ignore[type-arg]
    """Be the holder of a container, until the other end of the control socket is closed."""
    for group in fds:
        os.write(group, b"0")
        os.close(group)
    Holder(control, settings).run()
