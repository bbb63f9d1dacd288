"""Split a command by the table of wrappers: the wrapper's own words, and the command after them."""

import re
from collections.abc import Sequence

import msgspec

from ferrule.execpolicy.expansions import Splitting, Vague, may_be_option, may_begin_an_option
from ferrule.execpolicy.programs import base_name, is_trusted
from ferrule.execpolicy.wrapper_table import SU, WRAPPERS, Wrapper

_VERBS: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
"""By program: the calls that need further words, the longer ones first."""
for _call, _wrapper in sorted(WRAPPERS.items(), key=lambda item: -len(item[1].verb)):
    if _wrapper.verb:
        _VERBS.setdefault(_call.partition(" ")[0], []).append((_call, _wrapper.verb))


class Wrapped(msgspec.Struct, frozen=True):
    """The command inside a wrapper. `plain`: it runs with the same rights, words and input as without the wrapper.

    `leaves` is what the wrapper itself may write.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    plain: bool = False
    leaves: str = ""


class Cut(msgspec.Struct):
    """A wrapper's words, split. `sure` is False if one of them may mean something else."""

    at: int = 1
    sure: bool = True
    options: list[tuple[str, str]] = msgspec.field(default_factory=list)
    operands: list[str] = msgspec.field(default_factory=list)
    env: list[tuple[str, str]] = msgspec.field(default_factory=list)
    inner: tuple[str, ...] = ()

    def values(self, names: frozenset[str]) -> list[str]:
        return [value for name, value in self.options if name in names]

    def has(self, names: frozenset[str]) -> bool:
        return any(name in names for name, _ in self.options)


def is_wrapper(name: str) -> bool:
    """Return True for the base name of a program whose only work is to start another."""
    return name in WRAPPERS


def find_wrapper(argv: Sequence[str]) -> Wrapper | None:
    """Return the wrapper that `argv` calls, if any."""
    if not argv:
        return None
    name = base_name(argv[0])
    for call, verb in _VERBS.get(name, ()):
        if tuple(argv[1 : 1 + len(verb)]) == verb:
            return WRAPPERS[call]
    return WRAPPERS.get(name)


def hides_a_verb(argv: Sequence[str]) -> bool:
    """Return True for `uv --quiet run x`, where options come before the verb."""
    return any(_is_hidden(verb, argv[1:]) for _, verb in _VERBS.get(base_name(argv[0]), ()))


def _is_hidden(verb: Sequence[str], rest: Sequence[str]) -> bool:
    """Return True if an option comes before one of the verb's words."""
    place = next((at for at, word in enumerate(verb) if rest[at : at + 1] != (word,)), len(verb))
    return rest[place : place + 1] != () and rest[place].startswith("-") and verb[-1] in rest[place + 1 :]


def cut(argv: Sequence[str], wrapper: Wrapper) -> Cut:
    """Split a wrapper's words."""
    found = Cut(at=1 + len(wrapper.verb))
    if wrapper.dashes and "--" in argv[found.at :]:
        end = argv.index("--", found.at)
        found.sure = not any(isinstance(word, Splitting) for word in argv[found.at : end])
        found.inner = tuple(argv[end + 1 :])
        return found
    _options(argv, wrapper, found)
    while wrapper.assignments and found.at < len(argv) and "=" in argv[found.at]:
        name, _, value = argv[found.at].partition("=")
        found.env.append((name, _as(argv[found.at], value)))
        found.at += 1
    if wrapper.maybe and found.at < len(argv) and re.fullmatch(wrapper.maybe, argv[found.at]):
        _operand(argv, found)
    for _ in range(wrapper.operands):
        if found.at < len(argv):
            _operand(argv, found)
        if wrapper.late:
            _options(argv, wrapper, found)
    if wrapper.late and not wrapper.operands:
        _options(argv, wrapper, found)
    found.inner = tuple(argv[found.at :])
    return found


def _as(word: str, text: str) -> str:
    """Return a part of a word, as vague as the word."""
    return Vague(text) if isinstance(word, Vague) else text


def _operand(argv: Sequence[str], found: Cut) -> None:
    word = argv[found.at]
    found.sure = found.sure and not may_be_option(word)
    found.operands.append(word)
    found.at += 1


def _options(argv: Sequence[str], wrapper: Wrapper, found: Cut) -> None:
    while found.at < len(argv):
        word = argv[found.at]
        if may_begin_an_option(word):
            found.sure = False
        if not word.startswith("-") or (word == "-" and "-" not in wrapper.flags):
            return
        found.at += 1
        if word == "--":
            return
        if word.startswith("--"):
            _long_option(argv, word, wrapper, found)
        elif word == "-":
            found.options.append(("-", ""))
        else:
            _short_options(argv, word, wrapper, found)


def _long_option(argv: Sequence[str], word: str, wrapper: Wrapper, found: Cut) -> None:
    name, equals, value = word.partition("=")
    if not equals and name[2:] in wrapper.long_valued:
        value = _next(argv, found)
    elif not equals and name[2:] not in wrapper.long:
        found.sure = False
    found.options.append((name, _as(word, value)))


def _short_options(argv: Sequence[str], word: str, wrapper: Wrapper, found: Cut) -> None:
    """Read `-abc`: letters up to the first that takes a value, which is the rest of the word or the next one."""
    for place, letter in enumerate(word[1:], start=1):
        rest = word[place + 1 :]
        if letter in wrapper.valued:
            found.options.append(("-" + letter, _as(word, rest) if rest else _next(argv, found)))
            return
        if letter in wrapper.optional:
            found.options.append(("-" + letter, _as(word, rest)))
            return
        if letter not in wrapper.flags:
            found.sure = False
        if not letter.isdigit():
            found.options.append(("-" + letter, ""))


def _next(argv: Sequence[str], found: Cut) -> str:
    if found.at >= len(argv):
        return ""
    found.at += 1
    value = argv[found.at - 1]
    found.sure = found.sure and not isinstance(value, Splitting)
    return value


def unwrap(argv: Sequence[str]) -> Wrapped | None:
    """Return the command that the wrapper `argv[0]` starts, one layer deep; None if its words start none."""
    wrapper = find_wrapper(argv)
    if wrapper is None or wrapper is SU or wrapper.joined:
        return None
    found = cut(argv, wrapper)
    if not found.inner or found.has(wrapper.inert):
        return None
    return wrapped(argv, wrapper, found)


def wrapped(argv: Sequence[str], wrapper: Wrapper, found: Cut) -> Wrapped:
    """Return the command after a wrapper's own words."""
    plain = (
        wrapper.plain is not None
        and found.sure
        and is_trusted(argv[0])
        and all(name in wrapper.plain for name, _ in found.options)
    )
    return Wrapped(found.inner, tuple(found.env), plain, wrapper.leaves)
