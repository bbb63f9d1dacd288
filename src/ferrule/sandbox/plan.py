"""The plan that a sandbox enforces: a policy applied to one machine and one working directory."""

from enum import IntEnum

import msgspec

from ferrule.config.project import PROTECTED_AT_TOP
from ferrule.egress.names import DomainNames
from ferrule.lookup import NOWHERE, Places

RESERVED_NAMES = (".ferrule", ".codex", ".agents")
"""Folders at the top of a writable root that commands can neither write nor create."""
PROTECTED_NAMES = (".git", *PROTECTED_AT_TOP)
"""Read-only at the top of every writable root: files there run or decide something later, outside the sandbox."""


NOT_ALLOWED = (
    "{} is not an allowed domain. Allowed: {}. The user can add it to network_access below [sandbox_workspace_write] "
    "in config.toml, or a network_rule for it to a rules file."
)


class Level(IntEnum):
    """What a machine can enforce, best first. `probe.py` finds out which level works and says what it does not stop. A
    container is never found but asked for."""

    CONTAINER = 0
    NAMESPACES = 1
    BWRAP = 2
    LANDLOCK = 3
    SEATBELT = 4
    NONE = 9


class Root(msgspec.Struct, frozen=True):
    """A writable folder, by its real path.

    `reserve`: empty folders take the place of missing reserved names. `scan`: repositories are searched for below it
    and not only at its top; the machine's temporary folders are full of things that are nobody's work here.
    """

    path: str
    reserve: bool = True
    scan: bool = True


class Reach(msgspec.Struct, frozen=True):
    """What commands reach of the network: ports 80 and 443 of these names, and of what rules and the user allow beside
    them. `hosts` and `ca_file` are those of the policy."""

    names: DomainNames
    hosts: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None


class ConfinementPlan(msgspec.Struct, frozen=True):
    """The writable roots, outer ones first; whether the network is reachable, or what part; what is read-only inside
    the roots.

    `read_only` holds real paths in addition to the protected names: Ferrule's own home, and the dotfiles of a home
    folder that is a root. `opened` are roots that stay writable inside a read-only path. `warnings` are sentences for
    the user. `places` are where commands of any session here can write, whatever this plan allows: no program that
    builds the sandbox comes from there.
    """

    roots: tuple[Root, ...] = ()
    network: bool = False
    read_only: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    places: Places = NOWHERE
    reach: Reach | None = None

    def enforced(self) -> "ConfinementPlan":
        """Return the plan without what only its user reads, so that plans which confine alike are equal."""
        return msgspec.structs.replace(self, warnings=(), places=NOWHERE, reach=None)


def not_allowed(host: str, names: DomainNames) -> str:
    """Tell the model that a list of domains does not have a host, and what the user can do."""
    return NOT_ALLOWED.format(host, names)


def is_within(path: str, folder: str) -> bool:
    """Tell whether `path` is `folder` or lies below it. Both are absolute and real; the disk is not read."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def folders_between(top: str, path: str) -> list[str]:
    """Return the folders strictly between `top` and `path`, outer ones first; none if `path` is not below `top`."""
    if path == top or not is_within(path, top):
        return []
    parts = path[len(top.rstrip("/")) + 1 :].split("/")[:-1]
    return ["/".join((top.rstrip("/"), *parts[: depth + 1])) for depth in range(len(parts))]
