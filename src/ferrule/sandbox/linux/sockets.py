"""Sockets of the host that are not in its table of named sockets, or not yet: found by convention."""

import os
import stat
from collections.abc import Iterator, Mapping

from ferrule.kernel_files import mounts

WELL_KNOWN = (
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/tmp/.X11-unix",
)
_VARIABLES = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "XDG_RUNTIME_DIR", "GPG_AGENT_INFO")
MAX_ENTRIES = 2000
"""Entries of `/run` that are looked at."""


def well_known_sockets(env: Mapping[str, str] = os.environ) -> list[str]:
    """Real paths of sockets, and of folders that hold nothing else, which commands must not reach."""
    candidates = [*WELL_KNOWN, f"/run/user/{os.getuid()}", *_from_environment(env), *_mounted(), *_below("/run")]
    return sorted({os.path.realpath(path) for path in candidates if os.path.exists(path)})


def _from_environment(env: Mapping[str, str]) -> Iterator[str]:
    for name in _VARIABLES:
        for part in env.get(name, "").replace(";", ",").split(","):
            path = part.removeprefix("unix://").removeprefix("unix:path=")
            # A runtime folder in `/tmp` or a home would take the work with it.
            if path.startswith("/") and (name != "XDG_RUNTIME_DIR" or path.startswith("/run/")):
                yield path.split(":")[0] if name == "GPG_AGENT_INFO" else path


def _mounted() -> Iterator[str]:
    """A socket that was mounted into a container belongs to the network namespace of somebody else."""
    return (mount.point for mount in mounts() if _is_socket(mount.point))


def _below(top: str) -> Iterator[str]:
    seen = 0
    for folder, _, files in os.walk(top):
        for name in files:
            seen += 1
            if _is_socket(os.path.join(folder, name)):
                yield os.path.join(folder, name)
        if seen > MAX_ENTRIES:
            return


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
