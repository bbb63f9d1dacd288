"""The result of reading a script: its simple commands, and how well it was understood."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from ferrule.execpolicy.expansions import Vague


class SimpleCommand(msgspec.Struct, frozen=True):
    """One command: its words and the assignments before them.

    `literal` is False when a word is `Vague`: it needs the shell to be known (`$x`, `$(...)`). `globs` is True when a
    word has an unquoted glob, and so may become many; `may_gain_options` when one of these could be an option. `stdin`
    is the text that it reads, if the script contains it (`Vague` if it has expansions).
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    literal: bool = True
    globs: bool = False
    may_gain_options: bool = False
    stdin: str | None = None


class InputFile(str):
    """Standard input is this file."""

    __slots__ = ()


class Form(Enum):
    """How well a script was understood."""

    WORDS = "words"
    HEREDOC = "heredoc"  # one plain command that reads a literal here-document
    OTHER = "other"
    BROKEN = "broken"  # a syntax error, a control character, too long


class Script(msgspec.Struct, frozen=True):
    """The commands of a script in source order.

    `portable`: every POSIX shell cuts it the same way. `evaluates`: it may evaluate a quoted text that holds commands.
    `functions`: the names it defines. `files`: the text it writes into each file, None if unknown.
    """

    commands: tuple[SimpleCommand, ...]
    form: Form
    portable: bool = True
    evaluates: bool = False
    functions: frozenset[str] = frozenset()
    files: Mapping[str, str | None] = msgspec.field(default_factory=dict)


BROKEN = Script((), Form.BROKEN)


def printed(command: SimpleCommand) -> str | None:
    """Return what a command writes, if its words say so: `echo`, `printf` without directives, `cat` of a text."""
    name, *rest = command.argv or ("",)
    if name == "cat" and rest in ([], ["-"]) and not isinstance(command.stdin, InputFile):
        return command.stdin
    if name == "echo":
        end = "" if rest[:1] == ["-n"] else "\n"
        rest = rest[not end :]
        text = " ".join(rest) + end
        return text if command.literal and not text.startswith("-") and "\\" not in text else Vague(text)
    if name == "printf" and rest:
        return _formatted(command, rest)
    return None


def _formatted(command: SimpleCommand, rest: list[str]) -> str:
    form, *values = rest
    form = form.replace("\\n", "\n")
    text = "".join(form.replace("%s", value) for value in values or [""])
    plain = command.literal and not form.startswith("-") and not ({"%", "\\"} & set(form.replace("%s", "")))
    return text if plain and form.count("%s") <= 1 else Vague(text)
