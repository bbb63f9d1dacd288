"""The environment variables a command may see: `[shell_environment_policy]` of the configuration."""

from typing import Literal

import msgspec


class EnvironmentRules(msgspec.Struct, frozen=True, kw_only=True):
    """Applied in the order of the fields, except that `include` is applied with the default excludes.

    Patterns support `*` and `?` and ignore case.
    """

    inherit: Literal["all", "core", "none"] = "all"
    """Start with all of the agent's variables, with the few that programs need to run, or with none."""
    ignore_default_excludes: bool = False
    """Also pass on variables that look like secrets: `*KEY*`, `*SECRET*`, `*TOKEN*`."""
    include: tuple[str, ...] = ()
    """Pass these on although they look like secrets. A name spelled out in `include_only` counts as well."""
    exclude: tuple[str, ...] = ()
    set: dict[str, str] = {}
    include_only: tuple[str, ...] = ()
    """If not empty, nothing else remains, not even what `set` added."""


class ShellEnvironmentPolicy(EnvironmentRules, frozen=True, kw_only=True):
    """The user's rules, and the names that are secret whatever the rules say."""

    secrets: frozenset[str] = frozenset()
    """Variables that settings name as holding a secret. Withheld like those that look like one, whatever their
    names."""
