"""The environment of a command: variables the policy passes on, and settings that stop programs waiting for a
person."""

import re
import sys
from collections.abc import Iterable, Mapping

import msgspec

from ferrule.process.launcher import Pty, Stdio
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy

CORE_VARIABLES = (
    "PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"
)  # fmt: skip
"""Variables passed on by `inherit = "core"`."""
DEFAULT_EXCLUDES = ("*KEY*", "*SECRET*", "*TOKEN*")

_STALE = frozenset({"BASH_ENV", "PWD", "OLDPWD", "LINES", "COLUMNS"})
# Never inherited: a start-up file that every bash would run again, the agent's own directory, its terminal's size.

_LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"

_UNATTENDED = {
    "NO_COLOR": "1",
    "TERM": "dumb",
    "COLORTERM": "",
    "LANG": _LOCALE,
    "LC_CTYPE": _LOCALE,
    "LC_ALL": _LOCALE,
    # Pagers print and exit.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "AWS_PAGER": "cat",
    # Editors fail: one that succeeded without a change would let `git rebase -i` rewrite history.
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    # Nothing prompts for a password, in the terminal or in a window. Git takes an empty helper as the user's "none".
    "GIT_TERMINAL_PROMPT": "0",
    # `git status` does not take the user's index lock just to refresh it.
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ASKPASS": "",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
}


class ChildEnvironment(msgspec.Struct, frozen=True):
    """The variables of a command, and the sorted names of those withheld by an exclude."""

    variables: dict[str, str]
    withheld: tuple[str, ...]


def child_environment(
    policy: ShellEnvironmentPolicy,
    base: Mapping[str, str],
    *,
    stdio: Stdio | None = None,
    extra: Mapping[str, str] = {},
) -> ChildEnvironment:
    """Compute a command's environment from `base`, the agent's or its login shell's.

    `policy.set` overrides the settings that keep programs unattended; `extra` (the runtime's marks) overrides
    everything. For a PTY, `LINES` and `COLUMNS` match its size.
    """
    inherited = {name: value for name, value in base.items() if name not in _STALE and _inherits(policy, name)}
    withheld = {name for name in inherited if _is_withheld(policy, name)}
    variables = {name: value for name, value in inherited.items() if name not in withheld} | policy.set
    if policy.include_only:
        variables = {name: value for name, value in variables.items() if _matches(policy.include_only, name)}
    chosen = {name: variables[name] for name in policy.set if name in variables}
    return ChildEnvironment(variables | _UNATTENDED | _size(stdio) | chosen | dict(extra), tuple(sorted(withheld)))


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name probably holds a secret."""
    return _matches(DEFAULT_EXCLUDES, name)


def _inherits(policy: ShellEnvironmentPolicy, name: str) -> bool:
    return policy.inherit == "all" or (policy.inherit == "core" and name.upper() in CORE_VARIABLES)


def _is_withheld(policy: ShellEnvironmentPolicy, name: str) -> bool:
    if _matches(policy.exclude, name):
        return True
    may_be = not policy.ignore_default_excludes and looks_secret(name)
    if not may_be and name not in policy.secrets:
        return False
    spelled_out = (pattern for pattern in policy.include_only if not set(pattern) & {"*", "?"})
    return not _matches((*policy.include, *spelled_out), name)


def _size(stdio: Stdio | None) -> dict[str, str]:
    return {"LINES": str(stdio.rows), "COLUMNS": str(stdio.columns)} if isinstance(stdio, Pty) else {}


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(_regex(pattern).fullmatch(name) for pattern in patterns)


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.IGNORECASE | re.DOTALL)
