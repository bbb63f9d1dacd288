"""The client of the holder of a container."""

import errno
import os
import pwd
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ferrule.sandbox.linux.client import InitSource, Message, Reply, failure_text, parse_failure, send
from ferrule.sandbox.linux.id_map import PROGRAMS
from ferrule.sandbox.linux.launcher import kernel_version
from ferrule.sandbox.linux.mothers import PLACE
from ferrule.sandbox.linux.root import PrivateRoot
from ferrule.sandbox.linux.seccomp import build_filters
from ferrule.sandbox.way_out import WayOut, wire_way_out

NO_NAMESPACES = frozenset({errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EINVAL, errno.EUSERS, errno.ENOSYS})
"""What the kernel says, at one step or another, where an ordinary process may not have namespaces of its own."""
NAMESPACE_STEPS = ("unshare", "open", "mount")
"""Some machines refuse the namespaces, others only the map of ids or the first mount."""
OWN_MAPS = "/proc/self/"
"""Where the maps of ids are; what else cannot be opened is the image's."""
REMEDY = (
    "containers need user namespaces, which this machine does not allow ({}). As root, set `sysctl -w "
    "kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu), `sysctl -w kernel.unprivileged_userns_clone=1` (Debian) "
    "or `sysctl -w user.max_user_namespaces=10000`; inside Docker, start it with `--security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined`"
)


NO_OVERLAY = (
    "this kernel cannot lay a container over {}: {} (that takes overlayfs in a user namespace, Linux 5.11 or later, "
    "and a disk with extended attributes below /var/tmp)"
)
FIRST_ID = 0x70000000
"""The host's id that is 0 inside: beyond those that systemd gives to users and to containers, so nobody has it."""
IDS = 1 << 16
"""All that images use: `nobody` is 65534."""
OOM_SCORE = b"500"
"""When memory is short, the kernel ends a container's commands before anything of the host."""


def subordinate_ids() -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the first id, and how many there are, of the users and groups that the administrator gave to us; None if
    they are too few or no program can map them."""
    if not all(os.access(program, os.X_OK) for program in PROGRAMS.values()):
        return None
    users, groups = _given("/etc/subuid"), _given("/etc/subgid")
    return (users, groups) if users and groups else None


def _given(table: str) -> tuple[int, int] | None:
    names = {str(os.getuid())}
    with suppress(KeyError):
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    with suppress(OSError):
        for line in Path(table).read_text("utf-8", "replace").splitlines():
            name, *numbers = line.strip().split(":")
            if name in names and len(numbers) == 2 and all(map(str.isdigit, numbers)):
                first, count = map(int, numbers)
                if count >= IDS - 1:
                    return first, IDS - 1
    return None


PROBE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from linux.id_map import FullMap
first, count, folder = sys.argv[2:]
FullMap(int(first), int(count), (0, 0), {"image": (os.fsencode(folder), b"", b""), "binds": [], "own": []})
"""
PROBE_SECONDS = 20
"""It takes some 30 ms; on a busy machine a new process may wait for seconds."""


def can_map_ids(folder: Path) -> bool:
    """Tell whether containers on an image in this folder have many ids. Blocking."""
    if os.getuid() != 0:
        return False
    words = [sys.executable, "-I", "-S", "-c", PROBE, str(PLACE), str(FIRST_ID), str(IDS), str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def settings_of(
    root: PrivateRoot, memory_bytes: int, disk_bytes: int, way_out: WayOut | None = None, *, grouped: bool
) -> Message:
    """Build the message that makes a holder. `grouped`: a control group bounds the memory. `way_out` is also given to
    `HolderProcess`."""
    filters = build_filters(inet=True, user=root.user, group=root.user, watched_disk=True, watched_memory=not grouped)
    full = root.image is not None and os.getuid() == 0
    given = subordinate_ids() if root.image is not None and not full else None
    many = full or given is not None
    account = root.account
    mapped = build_filters(inet=True, any_ids=True, watched_disk=True, watched_memory=not grouped).base if many else b""
    return {
        "subordinate": given,
        "keeps_owners": given is not None and root.shows_writable,
        "map": (FIRST_ID, IDS) if full else None,
        "user": (account.user, account.group, list(account.groups)) if many and account and account.user else None,
        "capabilities": (),
        "mapped_filter": mapped,
        "ids": (root.user, root.user),
        "host_name": os.fsencode(root.host_name),
        "root": root.wire(),
        "way_out": wire_way_out(way_out),
        "writable": [os.fsencode(path) for path in root.writable],
        "memory_bytes": memory_bytes,
        "grouped": grouped,
        "disk_bytes": disk_bytes,
        "watched": [os.fsencode(bind.target) for bind in root.own_folders],
        "binds": {os.fsencode(bind.source): os.fsencode(bind.target) for bind in root.binds},
        "namespaces": True,
        "own_proc": True,
        "lingers": True,
        "oom_score_adj": OOM_SCORE,
        "pid_max": kernel_version() >= (6, 14),
        "filter": filters.base,
        "final_filter": filters.final,
        "final_filter_without_sockets": filters.final_without_sockets,
    }


class HolderProcess(InitSource):
    """The holder of one container. It is asked for its first init at once, while it still builds its root."""

    def __init__(self, control: socket.socket, way_out: WayOut | None = None) -> None:
        super().__init__(control, way_out)
        self.exceeded: set[str] = set()
        """What commands used too much of, and were ended for: memory, disk."""
        self.no_overlay = False
        """True if it failed because nothing can be laid over the image."""

    def watch(self) -> None:
        """Let it look at what its commands use, because one has started."""
        with suppress(OSError):
            send(self._control, {})

    def _heard(self, reply: Reply) -> None:
        if reply.kind == b"W":
            self.exceeded.add(reply.body.decode())
        else:
            super()._heard(reply)

    def _explain(self, failure: bytes) -> str:
        number, step, path = parse_failure(failure)
        text = failure_text(failure)
        if step == "overlay":
            self.no_overlay = True
            return NO_OVERLAY.format(path, os.strerror(number))
        refused = step in NAMESPACE_STEPS and (step != "open" or path.startswith(OWN_MAPS))
        if refused and number in NO_NAMESPACES:
            return REMEDY.format(text)
        return f"the container could not be made: {text}"
