"""Tell harmless variable assignments before a command: an allow-list, as any other may start something."""

import re
from collections.abc import Callable, Iterable

# Nothing that these hold is run or loaded.
_INERT = re.compile(
    r"LANG|LC_[A-Z]+|TZ|NO_COLOR|CLICOLOR(_FORCE)?|FORCE_COLOR|COLUMNS|LINES|TERM|CI|GIT_OPTIONAL_LOCKS"
)
# Git and man treat `cat` and the empty word as no pager; gh and the AWS tool run cat.
_PAGER = re.compile(r"((GIT|MAN|GH|AWS|SYSTEMD)_?)?PAGER")
_NO_PAGER = frozenset(["", "cat"])
# Switches and tokens that programs read as a word of their own; a value that is more than a word is not one.
_SWITCH = re.compile(
    r"NODE_ENV|GH_TOKEN|GITHUB_TOKEN|GITLAB_TOKEN|RUST_BACKTRACE|CARGO_TERM_COLOR|CARGO_INCREMENTAL|OMP_NUM_THREADS"
    r"|PYTHON(UNBUFFERED|DONTWRITEBYTECODE|UTF8|IOENCODING|HASHSEED|FAULTHANDLER)|CGO_ENABLED|GOOS|GOARCH|V|VERBOSE"
    r"|GIT_TERMINAL_PROMPT|DEBIAN_FRONTEND|SOURCE_DATE_EPOCH"
)
_SWITCH_VALUE = re.compile(r"[A-Za-z0-9_.:-]{0,200}", re.ASCII)
_COMPILER = re.compile(r"CC|CXX|HOSTCC|HOSTCXX")
_COMPILERS = re.compile(r"(gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(-[0-9.]+)?", re.ASCII)
_FLAGS = re.compile(r"(C|CXX|CPP)FLAGS")
# Neither a plugin, a search path for programs, a file of further flags nor a word for the linker.
_FLAG = re.compile(
    r"-O([0-3sgz]|fast)?|-g[0-3]?|-ggdb[0-3]?|-std=[a-z0-9+:]+|-W[a-z][a-z0-9-]*|-W|-w|-pipe|-pedantic(-errors)?"
    r"|-f(no-)?(pic|PIC|pie|PIE|lto|common|inline|exceptions|rtti|omit-frame-pointer|strict-aliasing)"
    r"|-fstack-protector(-strong|-all)?|-fsanitize=[a-z,]+|-m(32|64)|-m(arch|tune)=[a-z0-9-]+|-D\w+(=\w*)?",
    re.ASCII,
)


def is_inert(assignments: Iterable[tuple[str, str]]) -> bool:
    """Return True if a known-safe command stays safe with these assignments."""
    return all(_INERT.fullmatch(name) or _is_no_pager(name, value) for name, value in assignments)


def is_harmless(assignments: Iterable[tuple[str, str]], is_exposed: Callable[[str], bool]) -> bool:
    """Return True if none of these can make the command start or load something else, so that a rule may free it.

    `is_exposed` tells whether a command could have put a program where it is.
    """
    return all(_is_harmless(name, value, is_exposed) for name, value in assignments)


def _is_harmless(name: str, value: str, is_exposed: Callable[[str], bool]) -> bool:
    if _is_no_pager(name, value):
        return True
    if _INERT.fullmatch(name) or _SWITCH.fullmatch(name):
        return _SWITCH_VALUE.fullmatch(value) is not None or name == "TZ"
    if _COMPILER.fullmatch(name):
        return _COMPILERS.fullmatch(value) is not None and not is_exposed(value)
    return bool(_FLAGS.fullmatch(name)) and all(_FLAG.fullmatch(word) for word in value.split())


def _is_no_pager(name: str, value: str) -> bool:
    return bool(_PAGER.fullmatch(name)) and value in _NO_PAGER
