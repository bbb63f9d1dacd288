"""Find host sockets by convention that are missing, or still missing, from the table of named sockets."""

import os
import stat
from collections.abc import Iterator, Mapping

from ferrule.sandbox.linux.mount_table import all_mounts

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
"""Entries of `/run` that are checked."""


def well_known_sockets(env: Mapping[str, str] = os.environ) -> list[str]:
    """Return the real paths of sockets that commands must not reach, and of folders that hold nothing else."""
    candidates = [*WELL_KNOWN, f"/run/user/{os.getuid()}", *_from_environment(env), *_mounted(), *_below("/run")]
    return sorted({os.path.realpath(path) for path in candidates if os.path.exists(path)})


def _from_environment(env: Mapping[str, str]) -> Iterator[str]:
    for name in _VARIABLES:
        for part in env.get(name, "").replace(";", ",").split(","):
            path = part.removeprefix("unix://").removeprefix("unix:path=")
            # Covering a runtime folder in `/tmp` or a home would cover work in it, too.
            if path.startswith("/") and (name != "XDG_RUNTIME_DIR" or path.startswith("/run/")):
                yield path.split(":")[0] if name == "GPG_AGENT_INFO" else path


def _mounted() -> Iterator[str]:
    """Yield sockets mounted into a container, which belong to another network namespace."""
    return (mount.point for mount in all_mounts() if _is_socket(mount.point))


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
