"""Read calls of shells: the text that each is given to run."""

import re
from collections.abc import Sequence

import msgspec

from ferrule.execpolicy.expansions import Vague, may_be_option
from ferrule.execpolicy.options import words
from ferrule.execpolicy.programs import base_name
from ferrule.execpolicy.script import InputFile, SimpleCommand

_BASH_LIKE = frozenset(["bash", "zsh", "ksh", "rbash"])
_PORTABLE = frozenset(["sh", "dash", "ash", "mksh", "lksh", "pdksh", "posh", "yash"])
# Of these only a script of plain words is read as it is meant.
_FOREIGN = frozenset(["csh", "elvish", "fish", "nu", "pwsh", "tcsh", "xonsh", "rc", "es", "oil", "osh"])
_FOREIGN_SCRIPT = words("-c -C --command --init-command -Command -CommandWithArgs -EncodedCommand -e -ec")
_START_UP = words("--init-file --rcfile")  # files that are run before
_VALUED = _START_UP | words("--emulate")
_INPUT = re.compile(r"-|/dev/(stdin|fd/\d+)|/proc/(self|thread-self|\d+)/fd/\d+|.*/\.\./(dev|proc)/.*", re.DOTALL)


class ShellText(msgspec.Struct, frozen=True):
    """A text for a shell. `portable`: the shell knows no more than POSIX; `foreign`: it has a language of its own.

    `of_variable`: it is the value of a variable before the command.
    """

    text: str
    portable: bool = False
    foreign: bool = False
    of_variable: bool = False


class ShellCall(msgspec.Struct, frozen=True):
    """What a shell runs: texts in the command, or a file. `sure` is False if that is unknown."""

    texts: tuple[ShellText, ...] = ()
    sure: bool = True
    file: str = ""


def is_shell(name: str) -> bool:
    """Return True for the base name of any shell."""
    return name in _BASH_LIKE or name in _PORTABLE or name in _FOREIGN


def is_portable(program: str) -> bool:
    """Return True for a shell that may know no more than POSIX."""
    return base_name(program) in _PORTABLE


def shell_call(command: SimpleCommand) -> ShellCall:
    """Return what the shell that `command` starts is given to run."""
    name, rest = base_name(command.argv[0]), command.argv[1:]
    if name in _FOREIGN:
        return _foreign_call(command, rest)
    at, letters, sure = _options(rest)
    if "c" in letters:
        text = rest[at] if at < len(rest) else Vague("")
        return ShellCall((ShellText(text, name in _PORTABLE),), sure and not isinstance(text, Vague))
    if at < len(rest) and "s" not in letters and not is_input(rest[at]):
        return ShellCall((), sure and not may_be_option(rest[at]), rest[at])
    read = fed(command, portable=name in _PORTABLE)
    return msgspec.structs.replace(read, sure=sure and read.sure)


def _options(rest: Sequence[str]) -> tuple[int, set[str], bool]:
    """Return where the operands begin, the letters of the options before them, and whether that is certain."""
    at, letters, sure = 0, set[str](), True
    while at < len(rest) and rest[at][:1] in ("-", "+") and rest[at] not in ("-", "--"):
        word = rest[at]
        at += 1
        sure = sure and not isinstance(word, Vague)
        if not word.startswith("--"):
            letters |= set(word[1:])
        sure = sure and word.partition("=")[0] not in _START_UP
        for _ in range(1 if word in _VALUED else word.count("o") + word.count("O") if word[1:2] != "-" else 0):
            value = rest[at] if at < len(rest) else ""
            sure = sure and not isinstance(value, Vague) and value != "histexpand"
            at += 1
    sure = sure and not (at < len(rest) and may_be_option(rest[at])) and "H" not in letters
    return at + (at < len(rest) and rest[at] in ("-", "--")), letters, sure


def is_input(word: str) -> bool:
    """Return True for a file name that stands for an open input."""
    return _INPUT.fullmatch(word) is not None


def fed(command: SimpleCommand, *, portable: bool = False) -> ShellCall:
    """Return what a shell runs that reads its commands from its input."""
    text = command.stdin
    if text is None:
        return ShellCall((), False)
    if isinstance(text, InputFile):
        return ShellCall((), not is_input(text), text)
    return ShellCall((ShellText(text, portable),), not isinstance(text, Vague))


def _foreign_call(command: SimpleCommand, rest: Sequence[str]) -> ShellCall:
    for place, word in enumerate(rest):
        option, equals, value = word.partition("=")
        if option in _FOREIGN_SCRIPT:
            text = value if equals else " ".join(rest[place + 1 :][:1])
            return ShellCall((ShellText(text, foreign=True),), not isinstance(word, Vague))
    if rest and not rest[0].startswith("-"):
        return ShellCall((), not isinstance(rest[0], Vague))
    found = fed(command)
    return ShellCall(tuple(ShellText(read.text, foreign=True) for read in found.texts), found.sure and not rest)
