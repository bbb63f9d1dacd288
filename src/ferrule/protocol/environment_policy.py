"""Which environment variables a command may see: `[shell_environment_policy]` of the configuration."""

from typing import Literal

import msgspec


class ShellEnvironmentPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Applied in the order of the fields, except that `include` is asked where the default excludes are.

    Patterns know `*` and `?` and ignore case.
    """

    inherit: Literal["all", "core", "none"] = "all"
    """Start with every variable of the agent, with the few that programs need to run, or with none."""
    ignore_default_excludes: bool = False
    """Also pass on what looks like a secret: `*KEY*`, `*SECRET*`, `*TOKEN*`."""
    include: tuple[str, ...] = ()
    """Pass these on although they look like secrets. A name spelled out in `include_only` counts as well."""
    exclude: tuple[str, ...] = ()
    set: dict[str, str] = {}
    include_only: tuple[str, ...] = ()
    """If not empty, nothing else remains, not even what `set` added."""
    secrets: frozenset[str] = frozenset()
    """Variables that settings name as holding a secret. Withheld like what looks like one, whatever their names."""
