"""All checks. To add one, write a function with a docstring in a module of `groups/`, and decorate it."""

from collections.abc import Callable

import msgspec

from ferrule.conformance.server import Server

Run = Callable[[Server], None]


class Check(msgspec.Struct, frozen=True):
    """One check. `about` says in one line what holds."""

    group: str
    name: str
    about: str
    run: Run

    @property
    def title(self) -> str:
        """The check's full name, which `--only` is compared with."""
        return f"{self.group}.{self.name}"


CHECKS: list[Check] = []
"""All checks, in order; importing `ferrule.conformance.groups` fills it."""


def check(run: Run) -> Run:
    """Make a function a check: its name, and the first line of its docstring."""
    add(run.__module__, run.__name__, run.__doc__ or "", run)
    return run


def add(module: str, name: str, about: str, run: Run) -> None:
    """Add a check to the group of a module."""
    CHECKS.append(Check(module.rpartition(".")[2], name, about.strip().partition("\n")[0], run))
