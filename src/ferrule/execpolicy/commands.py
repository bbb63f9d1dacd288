"""The facts that every judgement stands on: which commands an argv runs, through shells and wrappers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .bash import BROKEN, Form, Script, SimpleCommand, parse_script
from .programs import trusted_name
from .wrappers import SHELLS, Wrapped, scripts_of, shell_script, started_by, unwrap

MAX_NESTING = 16  # shells within shells; nobody means more, and each level doubles the quoting
MAX_INNER_WORDS = 100_000  # of commands within commands; `find -exec find -exec ...` would grow without end


@dataclass(frozen=True, slots=True)
class SeenCommand:
    """A command that was seen somewhere. `direct`: nothing between it and the shell changes its rights or words.

    `outer` is the command that starts it, if it is not a segment itself.
    """

    command: SimpleCommand
    direct: bool = True
    outer: "SeenCommand | None" = None

    def chain(self) -> Iterator["SeenCommand"]:
        """This command and all that start it, innermost first."""
        seen: SeenCommand | None = self
        while seen is not None:
            yield seen
            seen = seen.outer


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """What an argv does.

    `segments` are the commands to judge one by one: those of a script that was understood whole, else the argv itself.
    `word_only`: the segments are all that happens. `seen` are all commands found at any depth, for refusing.
    `understood` is False when a part could not be read at all (syntax error, NUL, too deep, too long). `moves` is True
    when a segment changes the working directory of those after it.
    """

    segments: tuple[SimpleCommand, ...]
    word_only: bool
    seen: tuple[SeenCommand, ...]
    understood: bool
    moves: bool = False


def take_apart(
    argv: Sequence[str],
    env: tuple[tuple[str, str], ...] = (),
    is_exposed: Callable[[str], bool] = lambda program: False,
) -> CommandFacts:
    """Take a command apart that runs with the changes `env`. Never raises, whatever the words.

    `is_exposed` says of a program whether a command could have put it where it is: such a shell may do anything, so
    its script is not all that happens.
    """
    whole = SimpleCommand(tuple(argv), env)
    if not argv or any(_is_unspeakable(word) for word in argv):
        return CommandFacts((whole,), False, (SeenCommand(whole),), False)
    reader = _Reader(is_exposed)
    segments, word_only = reader.segments(whole, 0)
    script = shell_script(argv)
    inner = reader.parse(script).commands if script is not None and segments != (whole,) else None
    roots = (whole,) if inner is None else _behind(env, inner)
    seen = tuple(reader.everything(roots))
    moves = any(bare(segment).argv[:1] == ("cd",) for segment in segments)
    return CommandFacts(segments, word_only, seen, reader.understood, moves)


def _behind(env: tuple[tuple[str, str], ...], commands: Sequence[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """The commands with more variables before each."""
    return tuple(replace(command, env=(*env, *command.env)) for command in commands) if env else tuple(commands)


def _is_unspeakable(word: str) -> bool:
    """No program can be given a NUL or half a surrogate pair."""
    return "\0" in word or (not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word))


class _Reader:
    """One reading of one argv; each script is parsed once."""

    __slots__ = ("_is_exposed", "_scripts", "understood")

    def __init__(self, is_exposed: Callable[[str], bool]) -> None:
        self._is_exposed = is_exposed
        self._scripts: dict[str, Script] = {}
        self.understood = True

    def parse(self, text: str) -> Script:
        script = self._scripts.get(text)
        if script is None:
            script = self._scripts[text] = parse_script(text)
            self.understood = self.understood and script.form is not Form.BROKEN
        return script

    def segments(self, command: SimpleCommand, depth: int) -> tuple[tuple[SimpleCommand, ...], bool]:
        """The commands that `command` consists of, and whether they are all of it."""
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

    def everything(self, roots: Sequence[SimpleCommand]) -> Iterator[SeenCommand]:
        """Breadth first over all that the roots start; bounded, and `understood` says when it was cut."""
        layer = [SeenCommand(root) for root in roots]
        words = 0
        for _ in range(MAX_NESTING):
            yield from layer
            inner: list[SeenCommand] = []
            for seen in layer:
                for found in self._inner(seen):
                    words += len(found.command.argv)
                    if words > MAX_INNER_WORDS:
                        self.understood = False
                        return
                    inner.append(found)
            layer = inner
            if not layer:
                return
        self.understood = False

    def _inner(self, seen: SeenCommand) -> Iterator[SeenCommand]:
        argv, env = seen.command.argv, seen.command.env
        same_rights = seen.direct and (argv[:1] == ("eval",) or (bool(argv) and trusted_name(argv[0]) in SHELLS))
        for text in scripts_of(argv):
            for command in self.parse(text).commands:
                yield SeenCommand(replace(command, env=(*env, *command.env)), same_rights, seen)
        for wrapped in started_by(argv):
            if wrapped.argv:
                yield SeenCommand(_inside(seen.command, wrapped), seen.direct and wrapped.plain, seen)


def _inside(command: SimpleCommand, wrapped: Wrapped) -> SimpleCommand:
    return replace(command, argv=wrapped.argv, env=(*command.env, *wrapped.env))


def bare(command: SimpleCommand) -> SimpleCommand:
    """The command without the wrappers that leave it as it is (`timeout 5 git status`, `env A=1 ls`)."""
    for _ in range(MAX_NESTING):
        wrapped = unwrap(command.argv)
        if wrapped is None or not wrapped.plain:
            break
        command = _inside(command, wrapped)
    return command
