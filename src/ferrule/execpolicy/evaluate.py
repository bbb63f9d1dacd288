"""One `.rules` file, from text to rules: Starlark with `prefix_rule`, `host_executable` and `network_rule`.

The format is Codex's. Run as a program (`load.py` does it for files that compute), this module reads
`{"source", "filename"}` as JSON from standard input and prints `{"rules"}` or `{"error"}`, under limits that the
interpreter itself does not have: its step count does not see a long built-in, its allocation count not every string.
"""

import posixpath
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ferrule.execpolicy.rules import HostExecutable, NetworkRule, PrefixRule, RuleFile, expand_home
from ferrule.protocol.approvals import PolicyDecision
from ferrule.protocol.errors import UsageError

MAX_STEPS = 200_000  # a rules file is a list; a thousand rules take a twentieth of this
MAX_ALLOCATION_BYTES = 64 << 20
CHILD_CPU_SECONDS = 4
CHILD_MEMORY_BYTES = 256 << 20

_T = TypeVar("_T")
_DECISIONS = {decision.value: decision for decision in PolicyDecision}
_NETWORK_DECISIONS = _DECISIONS | {"deny": PolicyDecision.FORBIDDEN}
_PROTOCOLS = {
    "http": "http", "https": "https", "https_connect": "https", "http-connect": "https",
    "socks5_tcp": "socks5_tcp", "socks5_udp": "socks5_udp",
}  # fmt: skip
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:]+")


class RulesError(UsageError):
    """A rules file cannot be used; the text begins with `file:line:column` where the place is known."""


class _Bad(Exception):
    """The arguments of one call are wrong; `evaluate` adds the place."""


def evaluate(source: str, filename: str) -> RuleFile:
    """Return the rules of one file. Raises `RulesError`."""
    import starlark

    collected = _Collector(filename)
    builtins = {
        name: starlark.BuiltinFunction(name, _reporting(function)) for name, function in collected.builtins().items()
    }
    try:
        starlark.exec_file(
            source,
            filename=filename,
            predeclared=builtins,
            universal={"print": starlark.BuiltinFunction("print", _no_print)},
            max_steps=MAX_STEPS,
            max_allocs=MAX_ALLOCATION_BYTES,
        )
    except starlark.StarlarkSyntaxException as error:
        raise RulesError(str(error.errors[0])) from error
    except starlark.EvalError as error:
        place = next((str(frame.position) for frame in error.frames if frame.position is not None), filename)
        raise RulesError(f"{place}: {error.message}") from error
    except MemoryError as error:
        raise RulesError(f"{filename}: the file needs more than {CHILD_MEMORY_BYTES >> 20} MiB of memory") from error
    return collected.rules()


def _no_print(*_args: object, **_kwargs: object) -> None:
    return None


def _reporting(function: Callable[..., None]) -> Callable[..., None]:
    """The interpreter knows the place of a call only for its own error type."""

    def call(*args: object, **kwargs: object) -> None:
        import starlark

        try:
            function(
                *[starlark.from_value(arg) for arg in args], **{k: starlark.from_value(v) for k, v in kwargs.items()}
            )
        except _Bad as error:
            raise starlark.EvalError(str(error)) from error
        except starlark.UnsupportedTypeError as error:
            raise starlark.EvalError(f"{function.__name__}: expected strings and lists of strings") from error

    return call


class _Collector:
    """Gathers what the calls of one file define."""

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._prefix: list[PrefixRule] = []
        self._executables: list[HostExecutable] = []
        self._network: list[NetworkRule] = []

    def builtins(self) -> Mapping[str, Callable[..., None]]:
        return {
            "prefix_rule": self.prefix_rule,
            "host_executable": self.host_executable,
            "network_rule": self.network_rule,
        }

    def rules(self) -> RuleFile:
        return RuleFile(tuple(self._prefix), tuple(self._executables), tuple(self._network))

    def prefix_rule(self, *args: object, **kwargs: object) -> None:
        names = ("pattern", "decision", "justification", "match", "not_match", "exact")
        values = _bind("prefix_rule", names, args, kwargs)
        pattern = _pattern(values.get("pattern"))
        decision = _choice("decision", values.get("decision") or "allow", _DECISIONS)
        justification = _justification(values.get("justification"))
        exact = values.get("exact") or False
        if not isinstance(exact, bool):
            raise _Bad("exact must be True or False")
        rules = [
            PrefixRule(((first,), *pattern[1:]), decision, justification, self._filename, exact) for first in pattern[0]
        ]
        _check_examples(rules, _examples("match", values.get("match")), _examples("not_match", values.get("not_match")))
        self._prefix += rules

    def host_executable(self, *args: object, **kwargs: object) -> None:
        values = _bind("host_executable", ("name", "paths"), args, kwargs)
        name = values.get("name")
        if not isinstance(name, str) or not name or "/" in name:
            raise _Bad("name must be a bare file name such as 'git'")
        paths = tuple(expand_home(path) for path in _strings("paths", values.get("paths") or []))
        for path in paths:
            if not path.startswith("/"):
                raise _Bad(f"path '{path}' must be absolute or begin with ~/")
            if posixpath.basename(path) != name:
                raise _Bad(f"path '{path}' must end in '{name}'")
        self._executables.append(HostExecutable(name, paths))

    def network_rule(self, *args: object, **kwargs: object) -> None:
        values = _bind("network_rule", ("host", "protocol", "decision", "justification"), args, kwargs)
        host = values.get("host")
        if not isinstance(host, str) or not _HOST.fullmatch(host.lower()):
            raise _Bad("host must be a plain host name without scheme, path, port or wildcard")
        protocol = _choice("protocol", values.get("protocol"), _PROTOCOLS)
        decision = _choice("decision", values.get("decision"), _NETWORK_DECISIONS)
        justification = _justification(values.get("justification"))
        self._network.append(NetworkRule(host.lower(), protocol, decision, justification, self._filename))


def _bind(
    function: str, names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]
) -> Mapping[str, object]:
    if len(args) > len(names):
        raise _Bad(f"{function} takes {len(names)} arguments: {', '.join(names)}")
    values = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise _Bad(f"{function} has no argument '{name}'; it takes {', '.join(names)}")
        if name in values:
            raise _Bad(f"{function} got '{name}' twice")
        values[name] = value
    return values


def _choice(name: str, value: object, choices: Mapping[str, _T]) -> _T:
    if not isinstance(value, str) or value not in choices:
        raise _Bad(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return choices[value]


def _justification(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise _Bad("justification must be a text that is not blank")
    return value


def _strings(name: str, value: object) -> list[str]:
    if not isinstance(value, list):
        raise _Bad(f"{name} must be a list")
    texts = [item for item in value if isinstance(item, str)]
    if len(texts) != len(value):
        raise _Bad(f"{name} must hold strings only")
    return texts


def _pattern(value: object) -> list[tuple[str, ...]]:
    if not isinstance(value, list) or not value:
        raise _Bad("pattern must be a list with at least one word")
    return [_alternatives(item) for item in value]


def _alternatives(item: object) -> tuple[str, ...]:
    choices = [item] if isinstance(item, str) else _strings("a pattern element", item)
    if not choices or not all(choices):
        raise _Bad("a pattern element must be a word or a list of words, none of them empty")
    return tuple(choices)


def _examples(name: str, value: object) -> list[list[str]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Bad(f"{name} must be a list of commands")
    return [_example(name, item) for item in value]


def _example(name: str, item: object) -> list[str]:
    try:
        words = shlex.split(item) if isinstance(item, str) else _strings(f"an example in {name}", item)
    except ValueError as error:
        raise _Bad(f"the example {item!r} in {name} has unbalanced quotes") from error
    if not words:
        raise _Bad(f"an example in {name} is empty")
    return words


def _check_examples(rules: Sequence[PrefixRule], match: list[list[str]], not_match: list[list[str]]) -> None:
    for wanted, examples in ((True, match), (False, not_match)):
        for words in examples:
            found = any(rule.pattern[0][0] == words[0] and rule.matches(words[1:]) for rule in rules)
            if found is not wanted:
                says = "does not match the rule" if wanted else "matches the rule that must not match it"
                raise _Bad(f"the example `{shlex.join(words)}` {says}")


class _Input(msgspec.Struct):
    source: str
    filename: str


class Evaluated(msgspec.Struct, omit_defaults=True):
    """The child process's answer: one of the two."""

    rules: RuleFile | None = None
    error: str | None = None


def main() -> None:
    """Run as the child process: set the limits, then evaluate one file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CHILD_CPU_SECONDS, CHILD_CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY_BYTES, CHILD_MEMORY_BYTES))
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=_Input)
    try:
        answer = Evaluated(rules=evaluate(given.source, given.filename))
    except RulesError as error:
        answer = Evaluated(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def encode_input(source: str, filename: str) -> bytes:
    """Return the child process's input."""
    return msgspec.json.encode(_Input(source, filename))
