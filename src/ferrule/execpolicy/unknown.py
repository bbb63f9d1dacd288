"""Programs in no table, which may run the words after them (`run-one git push`)."""

from collections.abc import Iterator, Sequence
from itertools import islice

from ferrule.execpolicy.commands import take_apart
from ferrule.execpolicy.options import words
from ferrule.execpolicy.programs import base_name
from ferrule.execpolicy.readers import READERS
from ferrule.execpolicy.rules import Rules
from ferrule.execpolicy.started import is_understood
from ferrule.execpolicy.wrappers import is_wrapper

MAX_PLACES = 32
"""Words of one command at which another may begin; nobody writes more, and each is examined."""

# They take names and texts, and start nothing that their words name.
_STARTS_NOTHING = words(
    """
    : [ alias apropos cd chgrp chmod chown cp declare df dpkg dpkg-query echo exit export expr false file hash info
    install kill killall let ln local ls lsof man mkdir mkfifo mktemp mv pgrep pidof pkill popd printf ps pushd read
    readonly return rm rmdir rpm shift sleep tee test touch tree true type typeset ulimit umask unalias unlink unset
    whatis whereis
    """
)


def may_start_restricted(argv: Sequence[str], rules: Rules) -> bool:
    """Return True if a rule that forbids or asks matches the words after a program that may run them."""
    name = base_name(argv[0]) if argv else ""
    if not name or name in _STARTS_NOTHING or name in READERS or is_understood(argv):
        return False
    return any(_is_restricted(argv, at, rules) for at in islice(_places(argv, rules), MAX_PLACES))


def _places(argv: Sequence[str], rules: Rules) -> Iterator[int]:
    """Yield the places at which a restricted command may begin."""
    for at, word in enumerate(argv[1:], start=1):
        name = base_name(word)
        if name in rules.restricted or is_wrapper(name) or is_understood((name,)):
            yield at


def _is_restricted(argv: Sequence[str], at: int, rules: Rules) -> bool:
    # A name alone, somewhere among the words, is rather that of a package or a file: `apt install curl`.
    begins = at == 1 or argv[at - 1] == "--"
    commands = (seen.command for seen in take_apart(argv[at:]).seen)
    return any(rules.restricts_command(command.argv, least_words=1 if begins else 2) for command in commands)
