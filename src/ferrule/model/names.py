"""Map call names and call ids, as models and servers write them, to the declared ones."""

import logging
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from ferrule.protocol.items import ResponseItem

log = logging.getLogger("ferrule.model")

SHORTEST_PREFIX = 8
"""Minimum length at which a cut-off name can stand for the only tool that begins with it."""

_WRAPPERS = re.compile(r"^(?:functions?|tools?|default_api|multi_tool_use)[./:]", re.IGNORECASE)
_ALIASES = {"container.exec": "shell"}
_PLAIN = frozenset({"functions", "multi_agent_v1"})
"""Namespaces in which models were trained to call tools that have plain names here."""
"""Names from training for tools with other names."""


class Callee(msgspec.Struct, frozen=True):
    """The tool behind a name on the wire. `kind` is the kind of item for its calls."""

    name: str
    namespace: str | None = None
    kind: str = "function_call"

    @property
    def flat(self) -> str:
        """The name prefixed with its namespace, for wires without namespaces."""
        return self.name if self.namespace is None else f"{self.namespace}__{self.name}"


class CallNames:
    """A resolver of call names: exact matches, then without known wrappers, then the only tool it can mean."""

    def __init__(self, declared: Mapping[tuple[str | None, str], Callee]) -> None:
        self._declared = declared

    def declares(self, name: str) -> bool:
        """Return whether a tool is declared by exactly this name."""
        return (None, name) in self._declared

    def begins_longer(self, name: str) -> bool:
        """Return whether a longer declared name begins with this one."""
        return any(wire != name and wire.startswith(name) for _, wire in self._declared)

    def resolve(self, name: str, namespace: str | None = None) -> Callee | None:
        """Return the tool that is meant, or None if none or more than one is possible."""
        exact = self._declared.get((namespace, name))
        if exact is None and namespace == name:  # so OpenAI names a function that was searched for
            exact = self._declared.get((None, name))
        if exact is not None:
            return exact
        bare = _WRAPPERS.sub("", _without_tokens(name))
        callee = self._meant(_ALIASES.get(bare, bare), None if namespace in _PLAIN else namespace)
        if callee is not None:
            log.info("the call of %r is taken as one of %r", name, callee.flat)
        return callee

    def _meant(self, name: str, namespace: str | None) -> Callee | None:
        candidates = [
            (wire, callee)
            for (_, wire), callee in self._declared.items()
            if namespace is None or callee.namespace == namespace
        ]
        for matches in _ways(name):
            found = {callee.flat: callee for wire, callee in candidates if matches(wire, callee)}
            if found:
                return next(iter(found.values())) if len(found) == 1 else None
        return None


_TOKEN = re.compile(r"<\|[^|<>]*\|>")
_NUMBER = re.compile(r":[0-9]+$")


def _without_tokens(name: str) -> str:
    """Strip a chat template's remains from the name: `shell<|channel|>commentary`, `to=functions.shell:0`."""
    pieces = [piece.strip() for piece in _TOKEN.split(name)]
    first = next(filter(None, pieces), "")
    return _NUMBER.sub("", first.removeprefix("to=").strip("`\"' "))


def _ways(name: str) -> Iterator[Callable[[str, Callee], bool]]:
    """Yield the ways in which a name may differ from the declared one, the most certain first."""
    folded = name.casefold()
    yield lambda wire, callee: callee.namespace is None and wire == name
    yield lambda wire, callee: name in (wire, callee.flat)
    yield lambda wire, callee: folded in (wire.casefold(), callee.flat.casefold())
    yield lambda wire, callee: folded in (wire.rpartition("__")[2].casefold(), callee.name.casefold())
    if len(name) >= SHORTEST_PREFIX:
        yield lambda wire, callee: wire.startswith(name) or callee.flat.startswith(name)


class KnownIds:
    """The call ids of an append-only history, each read once."""

    def __init__(self) -> None:
        self._count = 0
        self._last: ResponseItem | None = None
        self._ids: set[str] = set()

    def of(self, items: Sequence[ResponseItem]) -> AbstractSet[str]:
        """Return all ids of the history. Valid until the next call."""
        grown = self._count <= len(items) and (not self._count or items[self._count - 1] is self._last)
        if not grown:
            self._count, self._ids = 0, set()
        for item in items[self._count :]:
            call_id = getattr(item.view, "call_id", None)
            if call_id is not None:
                self._ids.add(call_id)
        self._count, self._last = len(items), items[-1] if items else None
        return self._ids


class CallIds:
    """A generator of call ids that are unique within one response and its history."""

    def __init__(self, history: Callable[[], Container[str]], kept: frozenset[str], new_id: Callable[[], str]) -> None:
        self._read = history
        self._history: Container[str] | None = None
        self._kept = kept
        self._new_id = new_id
        self._taken: set[str] = set()

    def unique(self, call_id: str | None) -> str:
        """Return `call_id`, with `_2`, `_3`... appended if it is taken; a new id if the server sent none."""
        if self._history is None:
            self._history = self._read()
        wanted = call_id or f"call_{self._new_id()}"
        unique, number = wanted, 1
        while unique in self._taken or (unique in self._history and unique not in self._kept):
            number += 1
            unique = f"{wanted}_{number}"
        self._taken.add(unique)
        return unique
