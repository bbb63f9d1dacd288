"""Programs that start another one: what they would start, as words or as a script."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .options import words
from .programs import base_name, is_trusted

SHELLS = frozenset(["bash", "sh", "zsh", "dash", "ksh", "ash"])
_RUN = frozenset(["-c", "-lc", "-fc"])  # -f keeps zsh from reading ~/.zshenv: how our own tools call it
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_FIND_ACTIONS = frozenset(["-exec", "-execdir", "-ok", "-okdir"])


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How a wrapper's own words end and the wrapped command begins.

    `valued` are the short options that take a value, `long_valued` the long ones; `skip` counts the operands before the
    command. `plain` are the options with which the wrapped command runs as if it stood alone; None: never.
    """

    valued: str = ""
    long_valued: frozenset[str] = frozenset()
    skip: int = 0
    assignments: bool = False
    plain: frozenset[str] | None = None


_WRAPPERS: Mapping[str, _Wrapper] = {
    "command": _Wrapper(plain=frozenset()),
    "builtin": _Wrapper(),
    "exec": _Wrapper("a"),
    "env": _Wrapper("uCS", words("--unset --chdir --split-string"), assignments=True, plain=words("-i -")),
    "timeout": _Wrapper(
        "ks",
        words("--kill-after --signal"),
        skip=1,
        plain=words("-k -s --kill-after --signal --foreground --preserve-status -v --verbose"),
    ),
    "nice": _Wrapper("n", words("--adjustment"), plain=words("-n --adjustment")),
    "time": _Wrapper("fo", words("--format --output"), plain=words("-p")),
    "ionice": _Wrapper("cnpPu", words("--class --classdata --pid --pgid --uid")),
    "nohup": _Wrapper(),
    "sudo": _Wrapper(
        "CcDghpRrTtUu",
        words("--user --group --host --prompt --chdir --chroot --role --type --command-timeout --other-user"),
        assignments=True,
    ),
    "doas": _Wrapper("Cu"),
    "pkexec": _Wrapper("", words("--user")),
    "xargs": _Wrapper(
        "EIJLnPRsad", words("--max-args --max-procs --max-chars --max-lines --arg-file --delimiter --replace --eof")
    ),
    "stdbuf": _Wrapper("ioe", words("--input --output --error")),
    "setsid": _Wrapper(),
    "chroot": _Wrapper("", words("--userspec --groups"), skip=1),
    "flock": _Wrapper("wE", words("--timeout --wait --conflict-exit-code"), skip=1),
    "watch": _Wrapper("nd", words("--interval")),
    "busybox": _Wrapper(),
    "toybox": _Wrapper(),
}


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The command inside a wrapper. `plain`: it runs with the same rights, words and input as without the wrapper."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    plain: bool = False


@dataclass(slots=True)
class _Cursor:
    """Where the reading of a wrapper's own words stands."""

    at: int = 1
    options: set[str] = field(default_factory=set)
    env: list[tuple[str, str]] = field(default_factory=list)


def is_wrapper(name: str) -> bool:
    """True for the base name of a program whose work is to start another one."""
    return name in _WRAPPERS


def plain_options() -> dict[str, frozenset[str] | None]:
    """Each wrapper with the options behind which the command runs as if it stood alone; None: behind none."""
    return {name: wrapper.plain for name, wrapper in _WRAPPERS.items()}


def unwrap(argv: Sequence[str]) -> Wrapped | None:
    """The command that the wrapper `argv[0]` would start, one layer deep; None if it starts none."""
    wrapper = _WRAPPERS.get(base_name(argv[0])) if argv else None
    if wrapper is None:
        return None
    cursor = _Cursor()
    _skip_options(argv, wrapper, cursor)
    while wrapper.assignments and cursor.at < len(argv) and (found := _ASSIGNMENT.fullmatch(argv[cursor.at])):
        cursor.env.append((found[1], found[2]))
        cursor.at += 1
    inner = tuple(argv[cursor.at + wrapper.skip :])
    if not inner:
        return None
    plain = wrapper.plain is not None and cursor.options <= wrapper.plain and is_trusted(argv[0])
    return Wrapped(inner, tuple(cursor.env), plain)


def _skip_options(argv: Sequence[str], wrapper: _Wrapper, cursor: _Cursor) -> None:
    while cursor.at < len(argv) and argv[cursor.at].startswith("-"):
        word = argv[cursor.at]
        cursor.at += 1
        if word == "--":
            return
        if word.startswith("--") or len(word) == 1:
            name, equals, _ = word.partition("=")
            cursor.options.add(name)
            cursor.at += not equals and name in wrapper.long_valued
        elif not word[1:].isdigit():
            _skip_cluster(word, wrapper, cursor)


def _skip_cluster(word: str, wrapper: _Wrapper, cursor: _Cursor) -> None:
    """`-abc`: letters up to the first that takes a value, which is the rest of the word or the next one."""
    for place, letter in enumerate(word[1:], start=1):
        cursor.options.add("-" + letter)
        if letter in wrapper.valued:
            cursor.at += place == len(word) - 1
            return


def started_by(argv: Sequence[str]) -> Iterator[Wrapped]:
    """Every command that `argv` names as plain words to be started: the wrapped one, `find -exec`, `env -S`."""
    wrapped = unwrap(argv)
    if wrapped is not None:
        yield wrapped
    name = base_name(argv[0]) if argv else ""
    if name == "find":
        for place, word in enumerate(argv):
            if word in _FIND_ACTIONS:
                yield Wrapped(tuple(_until_terminator(argv[place + 1 :])))
    if name == "env":
        yield from _split_strings(argv)


def _until_terminator(arguments: Sequence[str]) -> Iterator[str]:
    for word in arguments:
        if word in (";", "+"):
            return
        yield word


def _split_strings(argv: Sequence[str]) -> Iterator[Wrapped]:
    """`env -S 'rm x' y` starts `rm x y`; env's own quoting is close enough to the shell's to see what is meant."""
    for place, word in enumerate(argv[1:], start=1):
        text = _value_of("S", "--split-string", word, argv[place + 1 : place + 2])
        if text is None:
            continue
        try:
            split = shlex.split(text)
        except ValueError:
            split = text.split()
        rest = argv[place + 1 :] if text and word.endswith(text) else argv[place + 2 :]
        yield Wrapped(tuple(word for word in (*split, *rest) if not _ASSIGNMENT.fullmatch(word)))


def _value_of(letter: str, long: str, word: str, following: Sequence[str]) -> str | None:
    """The value of an option that is spelled `-Xvalue`, `-vX value`, `--long=value` or `--long value`."""
    if word.startswith(long + "="):
        return word[len(long) + 1 :]
    if word == long or (re.fullmatch(r"-[A-Za-z]+", word) and word.endswith(letter)):
        return following[0] if following else None
    found = re.fullmatch(rf"-[a-z0]*{letter}(.+)", word, re.DOTALL)
    return found[1] if found else None


def shell_script(argv: Sequence[str]) -> str | None:
    """The script of `[bash, -c | -lc | -fc, script]` in exactly this form, whose shell is in a trusted place."""
    if len(argv) == 3 and argv[1] in _RUN and base_name(argv[0]) in SHELLS and is_trusted(argv[0]):
        return argv[2]
    return None


def command_text(argv: Sequence[str]) -> str:
    """A command as a person writes it: the script of a shell, else the quoted words, among them a shell that is not
    in a trusted place: it may be any program."""
    script = shell_script(argv)
    return shlex.join(argv) if script is None else script


def scripts_of(argv: Sequence[str]) -> Iterator[str]:
    """Every text that `argv` would hand to a shell: `sh -euc TEXT`, `eval TEXT`, `su -c TEXT`, `watch TEXT`."""
    name = base_name(argv[0]) if argv else ""
    rest = argv[1:]
    if name in SHELLS:
        yield from _shell_option(rest)
    elif name == "eval":
        yield " ".join(rest)
    elif name == "watch" and (wrapped := unwrap(argv)):
        yield " ".join(wrapped.argv)
    elif name == "trap" and rest:
        yield rest[0]
    elif name in ("su", "script", "flock"):
        for place, word in enumerate(rest):
            text = _value_of("c", "--command", word, rest[place + 1 : place + 2])
            if text is not None:
                yield text


def _shell_option(arguments: Sequence[str]) -> Iterator[str]:
    """The first operand after an option cluster that contains `c`; options in between are skipped."""
    seen = False
    for place, word in enumerate(arguments):
        if word.startswith(("-", "+")) and len(word) > 1:
            seen = seen or (not word.startswith("--") and "c" in word)
        elif seen and (place == 0 or arguments[place - 1] not in ("-o", "+o", "--rcfile", "--init-file")):
            yield word
            return
