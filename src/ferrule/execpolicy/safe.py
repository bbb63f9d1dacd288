"""Recognise commands that change no file, start no program and open no connection, by an allow-list of options."""

import re
from collections.abc import Sequence

from ferrule.execpolicy.commands import CommandFacts, bare
from ferrule.execpolicy.environment import is_inert
from ferrule.execpolicy.host import Host
from ferrule.execpolicy.options import words
from ferrule.execpolicy.programs import trusted_name
from ferrule.execpolicy.readers import READERS
from ferrule.execpolicy.safe_git import is_safe_git
from ferrule.execpolicy.script import SimpleCommand

_ANY_WORDS = frozenset(["echo", "expr", "false", "true"])  # no option of these does more than print or compare

_FIND_WORDS = words(
    """
    -H -L -P -a -amin -and -anewer -atime -cmin -cnewer -ctime -d -daystart -depth -empty -executable -false
    -follow -fstype -gid -group -ilname -iname -inum -ipath -iregex -iwholename -links -lname -ls -maxdepth
    -mindepth -mmin -mount -mtime -name -newer -newerat -newerct -newermt -nogroup -noleaf -not -nouser -o -or
    -path -perm -print -print0 -printf -prune -quit -readable -regex -regextype -samefile -size -true -type -uid
    -used -user -wholename -writable -xdev -xtype
    """
)
_FIND_NUMBER = re.compile(r"-[0-9]+[bcwkMG]?")  # -mtime -7, -size -10k
_SED_PRINT = re.compile(r"([0-9]+,)?[0-9]+p")


def is_known_safe(facts: CommandFacts, host: Host, segment: SimpleCommand | None = None) -> bool:
    """Return True if the command only does what is listed. False for anything that was not understood as a whole.

    With a `segment`, only that one is judged.
    """
    if not facts.word_only or not facts.understood:
        return False
    judged = facts.segments if segment is None else (segment,)
    return all(_is_safe(command, host, moves=facts.moves) for command in judged)


def _is_safe(command: SimpleCommand, host: Host, *, moves: bool) -> bool:
    inner = bare(command, quiet=True)
    if not inner.argv or not inner.literal or inner.may_gain_options or not is_inert(inner.env):
        return False
    if host.is_exposed(inner.argv[0]):
        return False
    name, arguments = trusted_name(inner.argv[0]), inner.argv[1:]
    if name in _ANY_WORDS:
        return True
    if name == "find":
        return _is_safe_find(arguments)
    if name == "sed":
        return _is_safe_sed(arguments)
    if name == "git":
        # After a `cd` git reads another repository's configuration than the host looked at.
        return not moves and is_safe_git(arguments, host)
    allowed = READERS.get(name or "")
    if allowed is None or (inner.globs and allowed.operands is not None):
        return False
    return allowed.allow(arguments)


def _is_safe_find(arguments: Sequence[str]) -> bool:
    return all(
        not word.startswith("-") or word in _FIND_WORDS or _FIND_NUMBER.fullmatch(word) is not None
        for word in arguments
    )


def _is_safe_sed(arguments: Sequence[str]) -> bool:
    """Accept exactly `sed -n N,Mp [FILE]`: any other script may write (`w`), execute (`e`) or be read from a file."""
    if len(arguments) not in (2, 3) or arguments[0] != "-n" or not _SED_PRINT.fullmatch(arguments[1]):
        return False
    return len(arguments) == 2 or not arguments[2].startswith("-")
