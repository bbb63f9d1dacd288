"""Find the commands that an argv runs, through shells and wrappers. Every decision rests on these facts."""

import posixpath
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ferrule.execpolicy.bash import parse_script
from ferrule.execpolicy.expansions import Vague, fixed_beginning
from ferrule.execpolicy.invocation import SHELLS, shell_script
from ferrule.execpolicy.programs import trusted_name
from ferrule.execpolicy.script import BROKEN, Form, Script, SimpleCommand
from ferrule.execpolicy.shells import ShellText, is_portable
from ferrule.execpolicy.started import started
from ferrule.execpolicy.wrappers import Wrapped, unwrap

MAX_NESTING = 16  # shells within shells; nobody means more, and each level doubles the quoting
_PRINTING = frozenset(["cat", "echo", "printf"])
MAX_INNER_WORDS = 100_000  # of commands within commands; `find -exec find -exec ...` would grow without end


class SeenCommand(msgspec.Struct, frozen=True):
    """A command found anywhere in an argv. `direct`: nothing between it and the shell changes its rights or words.

    `outer` is the command that starts it, if it is not a segment itself.
    """

    command: SimpleCommand
    direct: bool = True
    outer: "SeenCommand | None" = None

    def chain(self) -> Iterator["SeenCommand"]:
        """Yield this command and those that start it, innermost first."""
        seen: SeenCommand | None = self
        while seen is not None:
            yield seen
            seen = seen.outer


class CommandFacts(msgspec.Struct, frozen=True):
    """The commands in an argv.

    `segments` are the commands to judge one by one: those of a script that was understood whole, else the argv itself.
    `word_only`: the segments are all that happens. `seen` are all commands found at any depth, for refusing. `unread`
    are those of them that may start something else, which cannot be read before they run. `understood` is False when a
    part could not be read at all (syntax error, NUL, too deep, too long). `moves` is True when a segment changes the
    working directory of those after it.
    """

    segments: tuple[SimpleCommand, ...]
    word_only: bool
    seen: tuple[SeenCommand, ...]
    understood: bool
    moves: bool = False
    unread: tuple[SeenCommand, ...] = ()


def take_apart(
    argv: Sequence[str],
    env: tuple[tuple[str, str], ...] = (),
    is_exposed: Callable[[str], bool] = lambda program: False,
) -> CommandFacts:
    """Take apart a command that runs with the variables `env`. Never raises.

    `is_exposed` tells whether a command could have put a program where it is: such a shell may do anything, so its
    script is not all that happens.
    """
    whole = SimpleCommand(tuple(argv), env)
    if not argv or any(_is_unspeakable(word) for word in argv):
        alone = SeenCommand(whole)
        return CommandFacts((whole,), False, (alone,), False, unread=(alone,))
    reader = _Reader(is_exposed)
    segments, word_only = reader.segments(whole, 0)
    script = shell_script(argv)
    inner = reader.parse(script).commands if script is not None and segments != (whole,) else None
    seen = tuple(reader.everything(whole, None if inner is None else _behind(env, inner)))
    moves = any(bare(segment).argv[:1] == ("cd",) for segment in segments)
    return CommandFacts(segments, word_only, seen, reader.understood, moves, tuple(reader.unread))


def _behind(env: tuple[tuple[str, str], ...], commands: Sequence[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """Add variables before each command."""
    return tuple(msgspec.structs.replace(command, env=(*env, *command.env)) for command in commands)


def _is_unspeakable(word: str) -> bool:
    """Return True for a word that no program can be given: with a NUL or half a surrogate pair."""
    return "\0" in word or (not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word))


class _Reader:
    """One reading of one argv; each script is parsed once."""

    __slots__ = ("_aliases", "_files", "_is_exposed", "_scripts", "understood", "unread")

    def __init__(self, is_exposed: Callable[[str], bool]) -> None:
        self._is_exposed = is_exposed
        self._scripts: dict[str, Script] = {}
        self._aliases: dict[str, str] = {}
        self._files: dict[str, str | None] = {}  # what the scripts write into which file
        self.understood = True
        self.unread: list[SeenCommand] = []

    def parse(self, text: str) -> Script:
        script = self._scripts.get(text)
        if script is None:
            script = self._scripts[text] = parse_script(text)
            self.understood = self.understood and script.form is not Form.BROKEN
            self._files.update(script.files)
        return script

    def segments(self, command: SimpleCommand, depth: int) -> tuple[tuple[SimpleCommand, ...], bool]:
        """Return the commands that `command` consists of, and whether they are all of it."""
        text = shell_script(command.argv)
        if text is None:
            return (command,), True
        if self._is_exposed(command.argv[0]):
            return (command,), False
        script = self.parse(text) if depth < MAX_NESTING else BROKEN
        if script.form is Form.HEREDOC and depth == 0:
            return _behind(command.env, script.commands), False
        if script.form is not Form.WORDS:
            return (command,), False
        found: list[SimpleCommand] = []
        for inner in script.commands:
            parts, whole = self.segments(inner, depth + 1)
            if not whole:
                return (command,), False
            found += _behind(command.env, parts)
        return tuple(found), True

    def everything(self, whole: SimpleCommand, roots: Sequence[SimpleCommand] | None) -> list[SeenCommand]:
        """Collect, breadth first, all that `whole` starts, or that its `roots` start if they are known."""
        first = SeenCommand(whole)
        if roots is None:
            seen = self._layers([first])
        else:
            self._judge_script(first, ShellText(shell_script(whole.argv) or "", is_portable(whole.argv[0])))
            seen = self._layers([SeenCommand(root) for root in roots])
        if self._aliases:
            seen += self._layers(list(self._aliased()))
        if not _PRINTING.isdisjoint(self._redefined()):
            self.unread.append(first)  # what `echo x | sh` runs is then not x
        return seen

    def _layers(self, layer: list[SeenCommand]) -> list[SeenCommand]:
        """Collect what these start, layer by layer. Bounded: `understood` becomes False if it was cut."""
        found: list[SeenCommand] = []
        words = 0
        for _ in range(MAX_NESTING):
            found += layer
            inner: list[SeenCommand] = []
            for seen in layer:
                for started_one in self._inner(seen):
                    words += len(started_one.command.argv)
                    if words > MAX_INNER_WORDS:
                        return self._cut(found)
                    inner.append(started_one)
            layer = inner
            if not layer:
                return found
        return self._cut(found)

    def _cut(self, found: list[SeenCommand]) -> list[SeenCommand]:
        self.understood = False
        self.unread.append(found[0])
        return found

    def _inner(self, seen: SeenCommand) -> Iterator[SeenCommand]:
        command = seen.command
        found = started(command)
        if not found.sure:
            self.unread.append(seen)
        if command.argv[:1] == ("alias",):
            self._define(seen)
        argv = command.argv
        same_rights = seen.direct and (argv[:1] == ("eval",) or (bool(argv) and trusted_name(argv[0]) in SHELLS))
        for text in (*found.texts, *self._written(seen, found.files)):
            self._judge_script(seen, text)
            env = () if text.of_variable else command.env
            for inner in _behind(env, self.parse(text.text).commands):
                yield SeenCommand(inner, same_rights, seen)
        for wrapped in found.commands:
            if wrapped.argv:
                yield SeenCommand(_inside(command, wrapped), seen.direct and wrapped.plain, seen)

    def _written(self, seen: SeenCommand, files: Sequence[str]) -> Iterator[ShellText]:
        """Yield the scripts that run from files which the command itself writes."""
        for file in files if self._files else ():
            text = self._text_of(file)
            if text is None:
                self.unread.append(seen)
            elif text and (not text.startswith("#!") or "sh" in text.partition("\n")[0]):
                yield ShellText(text)

    def _text_of(self, file: str) -> str | None:
        """Return what the command writes into the file: "" if nothing, None if unknown."""
        name = posixpath.basename(file)
        if isinstance(file, Vague):
            known = (
                name
                and name == fixed_beginning(name)
                and not any(posixpath.basename(path) == name for path in self._files)
            )
            return "" if known else None
        return None if f"*/{name}" in self._files else self._files.get(posixpath.normpath(file), "")

    def _judge_script(self, seen: SeenCommand, text: ShellText) -> None:
        """Note `seen` as unread if we cannot read its text the way its shell does."""
        script = self.parse(text.text)
        plain = script.form is Form.WORDS
        portable = script.portable or not text.portable
        if script.form is Form.BROKEN or script.evaluates or not portable or (text.foreign and not plain):
            self.unread.append(seen)

    def _define(self, seen: SeenCommand) -> None:
        for word in seen.command.argv[1:]:
            name, equals, value = word.partition("=")
            if equals and not isinstance(word, Vague):
                self._aliases[name] = value
            elif word != "-p":
                self.unread.append(seen)

    def _redefined(self) -> set[str]:
        return {*self._aliases, *(name for script in self._scripts.values() for name in script.functions)}

    def _aliased(self) -> Iterator[SeenCommand]:
        """Yield the commands of all scripts again, with aliases expanded."""
        for text in list(self._scripts):
            script = parse_script(text, self._aliases)
            broken = script.form is Form.BROKEN
            for command in script.commands:
                yield SeenCommand(command)
            if broken:
                self.understood = False


def _inside(command: SimpleCommand, wrapped: Wrapped) -> SimpleCommand:
    return msgspec.structs.replace(command, argv=wrapped.argv, env=(*command.env, *wrapped.env))


def bare(command: SimpleCommand, *, quiet: bool = False) -> SimpleCommand:
    """Return the command without wrappers that leave it unchanged (`timeout 5 git status`, `env A=1 ls`).

    With `quiet`, wrappers that may write something themselves stay.
    """
    for _ in range(MAX_NESTING):
        wrapped = unwrap(command.argv)
        if wrapped is None or not wrapped.plain or (quiet and wrapped.leaves):
            break
        command = _inside(command, wrapped)
    return command
