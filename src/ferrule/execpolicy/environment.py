"""Assignments before a command: which leave its meaning alone, and which make it start something else."""

import re
from collections.abc import Iterable

# Nothing that these hold is run or loaded.
_INERT = re.compile(
    r"LANG|LC_[A-Z]+|TZ|NO_COLOR|CLICOLOR(_FORCE)?|FORCE_COLOR|COLUMNS|LINES|TERM|CI|GIT_OPTIONAL_LOCKS"
)
# Git and man treat `cat` and the empty word as no pager.
_PAGER = re.compile(r"(GIT_|MAN)?PAGER")
_NO_PAGER = frozenset(["", "cat"])
# Loaders, interpreters' start-up code, search paths, pagers, editors, compilers, proxies, and all of git's.
_STEERING = re.compile(
    r"(LD|DYLD|GLIBC|MALLOC|GIT|BASH|XDG|GCONV|NPM_CONFIG|PERL|SSH|JAVA|JDK|RUSTC|RUBY|LUA|ZSH|PERL5|LESS)_.*"
    r"|PYTHON(?!UNBUFFERED|DONTWRITEBYTECODE|UTF8|IOENCODING|HASHSEED|FAULTHANDLER).*"
    r"|.*(PAGER|EDITOR|PATH|HOME|SHELL|PRELOAD|OPTIONS|OPTS?|FLAGS|ASKPASS|WRAPPER|BROWSER|_COMMAND|CONFIG|_PROXY|_RSH)"
    r"|ENV|IFS|VISUAL|PS[0-9]|RUBYLIB|PERL5.*|LESS(OPEN|CLOSE)?|TERMINFO.*|TMPDIR|ZDOTDIR|CC|CXX|PAGER",
    re.IGNORECASE,
)


def is_inert(assignments: Iterable[tuple[str, str]]) -> bool:
    """True if a known-safe command stays safe behind these assignments."""
    return all(_INERT.fullmatch(name) or _is_no_pager(name, value) for name, value in assignments)


def is_steering(assignments: Iterable[tuple[str, str]]) -> bool:
    """True if one of these can make the command start or load something else, so that no allow rule covers it."""
    return any(_STEERING.fullmatch(name) and not _is_no_pager(name, value) for name, value in assignments)


def _is_no_pager(name: str, value: str) -> bool:
    return bool(_PAGER.fullmatch(name)) and value in _NO_PAGER
