"""The user's rules, and what they say about a command."""

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from ferrule.execpolicy.expansions import Glob, Splitting, Vague, fixed_beginning
from ferrule.execpolicy.programs import TRUSTED_DIRECTORIES, base_name
from ferrule.protocol.approvals import ExecPolicyAmendment, NetworkAmendment, PolicyDecision, PrefixRuleMatch


class PrefixRule(msgspec.Struct, frozen=True):
    """A rule for commands that begin with these words. Each element lists one word's alternatives; the first has one.

    `exact`: no further words may follow."""

    pattern: tuple[tuple[str, ...], ...]
    decision: PolicyDecision = PolicyDecision.ALLOW
    justification: str | None = None
    source: str | None = None
    exact: bool = False

    def matches(self, words: Sequence[str]) -> bool:
        """Return True if `words`, the command without its program, begins with the rest of the pattern."""
        rest = self.pattern[1:]
        if len(words) < len(rest) or (self.exact and len(words) > len(rest)):
            return False
        return all(word in choices for word, choices in zip(words, rest, strict=False))

    def may_match(self, words: Sequence[str]) -> bool:
        """Return True if `words` may begin with the rest of the pattern once the shell has expanded them."""
        for place, choices in enumerate(self.pattern[1:]):
            word = words[place] if place < len(words) else ""
            if isinstance(word, Glob):
                return any(fnmatchcase(choice, word) for choice in choices)
            if isinstance(word, Vague):
                beginning = fixed_beginning(word)
                if not any(choice.startswith(beginning) for choice in choices):
                    return False
                if isinstance(word, Splitting):
                    return True
            elif word not in choices or place >= len(words):
                return False
        return True


class HostExecutable(msgspec.Struct, frozen=True):
    """The absolute paths at which a program's allow rules count."""

    name: str
    paths: tuple[str, ...]


class NetworkRule(msgspec.Struct, frozen=True):
    """A rule for connections to one host. `protocol` is http, https, socks5_tcp or socks5_udp."""

    host: str
    protocol: str
    decision: PolicyDecision
    justification: str | None = None
    source: str | None = None


class RuleFile(msgspec.Struct, frozen=True):
    """The rules of one file, in order."""

    prefix: tuple[PrefixRule, ...] = ()
    executables: tuple[HostExecutable, ...] = ()
    network: tuple[NetworkRule, ...] = ()


class Matches(msgspec.Struct, frozen=True):
    """The rules that match one command. A rule that allows does not match a copy or a link (`./git`)."""

    found: tuple[PrefixRuleMatch, ...] = ()


class Rules:
    """The rules of all layers together; immutable. The strictest match wins, so the order of layers does not matter."""

    __slots__ = ("_by_program", "_executables", "_network", "files", "restricted", "restricts")

    def __init__(self, files: Iterable[RuleFile] = ()) -> None:
        self.files = tuple(files)
        by_program: dict[str, list[PrefixRule]] = {}
        for file in self.files:
            for rule in file.prefix:
                by_program.setdefault(rule.pattern[0][0], []).append(rule)
        self._by_program: Mapping[str, tuple[PrefixRule, ...]] = {
            key: tuple(found) for key, found in by_program.items()
        }
        restricting = [rule for file in self.files for rule in file.prefix if rule.decision is not PolicyDecision.ALLOW]
        self.restricts = bool(restricting)
        self.restricted = frozenset(base_name(rule.pattern[0][0]) for rule in restricting)
        self._executables = {entry.name: frozenset(entry.paths) for file in self.files for entry in file.executables}
        self._network = tuple(rule for file in self.files for rule in file.network)

    def __bool__(self) -> bool:
        return bool(self._by_program)

    def amended(self, amendment: ExecPolicyAmendment | NetworkAmendment, source: str | None = None) -> "Rules":
        """Return these rules and one more, which allows the prefix, the exact command, or the host."""
        if isinstance(amendment, NetworkAmendment):
            allowed = NetworkRule(amendment.host, amendment.protocol, PolicyDecision.ALLOW, None, source)
            return Rules((*self.files, RuleFile(network=(allowed,))))
        rule = PrefixRule(tuple((word,) for word in amendment.command), source=source, exact=amendment.exact)
        return Rules((*self.files, RuleFile(prefix=(rule,))))

    @property
    def allowed_hosts(self) -> list[str]:
        """Return the hosts that rules allow."""
        return [rule.host for rule in self._network if rule.decision is PolicyDecision.ALLOW]

    def network_rule(self, host: str, protocol: str) -> NetworkRule | None:
        """Return the strictest rule for a connection, or None if none matches."""
        found = [rule for rule in self._network if rule.host == host.lower() and rule.protocol == protocol]
        return max(found, key=lambda rule: strictness(rule.decision), default=None)

    def match(self, argv: Sequence[str], resolved: str | None = None) -> Matches:
        """Return the rules for one command. `resolved` is its program's real path, if the caller knows it.

        The program's own spelling counts first, then its base name: a rule that restricts matches a program of that
        name anywhere, a rule that allows only in a trusted place.
        """
        if not argv or not self._by_program:
            return Matches()
        program, words = argv[0], argv[1:]
        exact = tuple(_found(self._by_program.get(program, ()), words, program, None))
        if exact:
            return Matches(exact)
        found: list[PrefixRuleMatch] = []
        for name, path in self._other_names(program, resolved):
            vouched = path == program and self._vouched(name, path)
            matches = _found(self._by_program.get(name, ()), words, name, path)
            found += (match for match in matches if vouched or match.decision is not PolicyDecision.ALLOW)
        return Matches(tuple(found))

    def may_restrict(self, argv: Sequence[str], resolved: str | None = None) -> bool:
        """Return True if a rule that forbids or asks may match once the shell has expanded the words."""
        if not argv or not self.restricts or not any(isinstance(word, Vague | Glob) for word in argv):
            return False
        names = {argv[0], *(name for name, _ in self._other_names(argv[0], resolved))}
        rules = (rule for name in names for rule in self._by_program.get(name, ()))
        return any(rule.decision is not PolicyDecision.ALLOW and rule.may_match(argv[1:]) for rule in rules)

    def restricts_command(self, argv: Sequence[str], least_words: int) -> bool:
        """Return True if a rule of at least so many words forbids the command or asks about it."""
        return any(
            match.decision is not PolicyDecision.ALLOW and len(match.matched_prefix) >= least_words
            for match in self.match(argv).found
        )

    def _other_names(self, program: str, resolved: str | None) -> Iterator[tuple[str, str]]:
        """Yield the program's other base names, each with its path."""
        name = base_name(program)
        if name != program:
            yield name, program
        if resolved is not None and base_name(resolved) not in (name, program):
            yield base_name(resolved), resolved

    def _vouched(self, name: str, path: str) -> bool:
        if name in self._executables:
            return path in self._executables[name]
        return posixpath.dirname(path) in TRUSTED_DIRECTORIES and posixpath.basename(path) == name


def _found(rules: Iterable[PrefixRule], words: Sequence[str], name: str, path: str | None) -> Iterator[PrefixRuleMatch]:
    for rule in rules:
        if rule.matches(words):
            prefix = (name, *words[: len(rule.pattern) - 1])
            yield PrefixRuleMatch(prefix, rule.decision, rule.justification, path, rule.source)


def strictness(decision: PolicyDecision) -> int:
    """Return 0 for allow, 1 for prompt, 2 for forbidden."""
    return (PolicyDecision.ALLOW, PolicyDecision.PROMPT, PolicyDecision.FORBIDDEN).index(decision)


def expand_home(path: str) -> str:
    """Return `~/x` as an absolute path, other paths unchanged."""
    return os.path.expanduser(path) if path.startswith("~/") else path
