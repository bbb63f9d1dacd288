"""What a sandbox enforces, once a policy has been applied to one machine and one working directory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

PROTECTED_NAMES = (".git", ".ferrule", ".codex", ".agents")
"""Read-only at the top of every writable root: what is written there runs or decides later, outside of the sandbox."""


class Level(IntEnum):
    """What this machine can enforce, best first. `probe.py` finds out, `explain` says what it does not stop."""

    NAMESPACES = 1
    BWRAP = 2
    LANDLOCK = 3
    SEATBELT = 4
    NONE = 9


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that may be written: its real path. `reserve`: protected names that are missing are kept free, too."""

    path: str
    reserve: bool = True


@dataclass(frozen=True, slots=True)
class ConfinementPlan:
    """The writable roots, outer ones first; whether the network is reachable; what is read-only inside the roots.

    `read_only` holds real paths beyond the protected names: Ferrule's own home, dotfiles of a home that is a root.
    `warnings` are sentences for the user.
    """

    roots: tuple[Root, ...] = ()
    network: bool = False
    read_only: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def outermost(self) -> Iterator[Root]:
        """The roots that lie in no other root."""
        for root in self.roots:
            if not any(other is not root and is_within(root.path, other.path) for other in self.roots):
                yield root


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it. Both absolute and real; no disk access."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
