"""What a sandbox enforces, once a policy has been applied to one machine and one working directory."""

from enum import IntEnum

import msgspec

from ferrule.config.project import PROTECTED_AT_TOP
from ferrule.lookup import NOWHERE, Places

RESERVED_NAMES = (".ferrule", ".codex", ".agents")
"""Folders at the top of a writable root that stay free of what commands write, also where they are missing."""
PROTECTED_NAMES = (".git", *PROTECTED_AT_TOP)
"""Read-only at the top of every writable root: what is written there runs or decides later, outside of the sandbox."""


class Level(IntEnum):
    """What this machine can enforce, best first. `probe.py` finds out, `explain` says what it does not stop."""

    NAMESPACES = 1
    BWRAP = 2
    LANDLOCK = 3
    SEATBELT = 4
    NONE = 9


class Root(msgspec.Struct, frozen=True):
    """A folder that may be written: its real path.

    `reserve`: an empty folder holds the place of a reserved name that is missing. `scan`: repositories are looked for
    below it, and not only at its top; a temporary folder of the machine is full of what is nobody's work here.
    """

    path: str
    reserve: bool = True
    scan: bool = True


class ConfinementPlan(msgspec.Struct, frozen=True):
    """The writable roots, outer ones first; whether the network is reachable; what is read-only inside the roots.

    `read_only` holds real paths beyond the protected names: Ferrule's own home, dotfiles of a home that is a root.
    `opened` are those of the roots that may be written although they lie in what is read-only.
    `warnings` are sentences for the user. `places` are where commands of any session here can write, whatever this plan
    lets them: no program that builds the sandbox comes from there.
    """

    roots: tuple[Root, ...] = ()
    network: bool = False
    read_only: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    places: Places = NOWHERE

    def enforced(self) -> "ConfinementPlan":
        """Return the plan without what only its user reads, so that plans which confine alike are equal."""
        return msgspec.structs.replace(self, warnings=(), places=NOWHERE)


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it. Both absolute and real; no disk access."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def folders_between(top: str, path: str) -> list[str]:
    """The folders strictly between `top` and `path`, outer ones first; none if `path` is not below it."""
    if path == top or not is_within(path, top):
        return []
    parts = path[len(top.rstrip("/")) + 1 :].split("/")[:-1]
    return ["/".join((top.rstrip("/"), *parts[: depth + 1])) for depth in range(len(parts))]
