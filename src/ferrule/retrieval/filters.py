"""Filters over the attributes of documents, as the Responses API spells them.

A comparison is `{"type": "eq", "key": K, "value": V}`, a compound `{"type": "and", "filters": [...]}`. Values keep
their types: true is not 1, 1.0 is 1, and a text is no number. A document without the attribute matches only `ne` and
`nin`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast, get_args

import msgspec

from ferrule.protocol.errors import FerruleError
from ferrule.protocol.json_text import JsonValue

Value = str | float | bool
"""What an attribute can be. Whole numbers are floats, too."""
Attributes = Mapping[str, Value]

Test = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
Join = Literal["and", "or"]
_TESTS, _JOINS = get_args(Test), get_args(Join)
_OPPOSITES: Mapping[str, Test] = {"ne": "eq", "nin": "in"}

MAX_LEVELS = 32
"""Filters within filters. A person writes three."""


class BadFilter(FerruleError):
    """A filter that cannot be read: one sentence that says what is wrong with it, and what would be right."""


class Comparison(msgspec.Struct, frozen=True):
    """A test of one attribute. `value` is a tuple for `in` and `nin`."""

    type: Test
    key: str
    value: Value | tuple[Value, ...]


class Compound(msgspec.Struct, frozen=True):
    """All of some filters, or any."""

    type: Join
    filters: "tuple[Filter, ...]"


Filter = Comparison | Compound


def read_filter(given: JsonValue) -> Filter:
    """Return a filter as a client sent it. Raises `BadFilter`."""
    return _read(given, 1)


def _read(given: JsonValue, level: int) -> Filter:
    if level > MAX_LEVELS:
        raise BadFilter(f"A filter has at most {MAX_LEVELS} levels.")
    if not isinstance(given, Mapping):
        raise BadFilter(f"A filter is an object, not {_kind(given)}.")
    kind = given.get("type")
    if kind in _JOINS:
        return _read_compound(given, cast(Join, kind), level)
    if kind in _TESTS:
        return _read_comparison(given, cast(Test, kind))
    raise BadFilter(f"The type of a filter is one of {', '.join((*_TESTS, *_JOINS))}.")


def _read_compound(given: Mapping[str, JsonValue], kind: Join, level: int) -> Compound:
    _only(given, "type", "filters")
    inner = given.get("filters")
    if not isinstance(inner, list | tuple) or not inner:
        raise BadFilter(f"The filter `{kind}` needs `filters`, a list with at least one filter.")
    return Compound(kind, tuple(_read(one, level + 1) for one in inner))


def _read_comparison(given: Mapping[str, JsonValue], kind: Test) -> Comparison:
    _only(given, "type", "key", "value")
    key, value = given.get("key"), given.get("value")
    if not isinstance(key, str):
        raise BadFilter(f"The filter `{kind}` needs `key`, the name of an attribute.")
    if kind in ("in", "nin"):
        if not isinstance(value, list | tuple):
            raise BadFilter(f"The value of the filter `{kind}` is a list, not {_kind(value)}.")
        return Comparison(kind, key, tuple(_value(kind, one) for one in value))
    if kind not in ("eq", "ne") and isinstance(value, bool):
        raise BadFilter(f"The filter `{kind}` compares numbers or texts, not true and false.")
    return Comparison(kind, key, _value(kind, value))


def _only(given: Mapping[str, JsonValue], *known: str) -> None:
    unknown = [str(key) for key in given if key not in known]
    if unknown:
        raise BadFilter(f"The filter `{given['type']}` has no {unknown[0]!r}: it takes {', '.join(known)}.")


def _value(kind: Test, value: JsonValue) -> Value:
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        number = _float(value)
        if math.isfinite(number):
            return number
    raise BadFilter(f"The filter `{kind}` compares with a text, a number, or true and false, not {_kind(value)}.")


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a text"
        case Mapping():
            return "an object"
        case Sequence():
            return "a list"
    return "this number"


Find = Callable[[Comparison], set[int]]
"""Returns the documents whose attribute passes a test that is neither `ne` nor `nin`."""


def matching(filter: Filter, find: Find, everything: Callable[[], set[int]]) -> set[int]:  # noqa: A002 - the API's name
    """Return the numbers of the documents that a filter takes; `everything` returns those of all."""
    if isinstance(filter, Comparison):
        opposite = _OPPOSITES.get(filter.type)
        if opposite is None:
            return find(filter)
        return everything() - find(Comparison(opposite, filter.key, filter.value))
    sets = [matching(one, find, everything) for one in filter.filters]
    return set.intersection(*sets) if filter.type == "and" else set.union(*sets)
