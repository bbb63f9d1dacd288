"""Filters: what is taken, what is refused, and that SQLite decides as the API says."""

import sqlite3
from typing import Any

import pytest

from ferrule.retrieval import tables
from ferrule.retrieval.filters import MAX_LEVELS, BadFilter, read_filter
from ferrule.retrieval.tables import Document

DOCUMENTS: dict[str, dict[str, str | float | bool]] = {
    "one": {"n": 1, "flag": True, "text": "1"},
    "two": {"n": 2.5, "flag": False, "text": "b"},
    "true": {"n": True},
    "none": {},
}


@pytest.fixture(scope="module")
def tx() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    tables.make_tables(connection)
    for name, attributes in DOCUMENTS.items():
        tables.put(connection, Document(name, (), attributes=attributes), None)
    return connection


def compare(kind: str, key: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (compare("eq", "n", 1), "one"),
        (compare("eq", "n", 1.0), "one"),
        (compare("eq", "n", True), "true"),  # true is not 1
        (compare("eq", "n", "1"), ""),  # text is no number
        (compare("eq", "text", "1"), "one"),
        (compare("eq", "text", 1), ""),
        (compare("ne", "n", 1), "two true none"),  # a missing attribute matches
        (compare("gt", "n", 1), "two"),
        (compare("gte", "n", 1), "one two"),
        (compare("lt", "n", 10), "one two"),
        (compare("lte", "n", 1), "one"),
        (compare("gt", "text", "a"), "two"),
        (compare("in", "n", [1, "x", True]), "one true"),
        (compare("in", "n", []), ""),
        (compare("nin", "n", [1, 2.5]), "true none"),
        (compare("nin", "n", []), "one two true none"),
        (compare("eq", "gone", "x"), ""),
        ({"type": "and", "filters": [compare("gt", "n", 0), compare("eq", "flag", False)]}, "two"),
        ({"type": "or", "filters": [compare("eq", "n", 1), compare("eq", "flag", False)]}, "one two"),
        (
            {"type": "and", "filters": [{"type": "or", "filters": [compare("ne", "n", 1)]}, compare("ne", "n", 2.5)]},
            "true none",
        ),
    ],
)
def test_a_filter_takes_what_the_api_says(tx: sqlite3.Connection, wanted: dict[str, Any], names: str) -> None:
    passing = tables.passing(tx, read_filter(wanted))
    assert {name for number, name in tx.execute("select id, name from documents") if number in passing} == set(
        names.split()
    )


def nested(levels: int) -> dict[str, Any]:
    return compare("eq", "n", 1) if levels == 1 else {"type": "and", "filters": [nested(levels - 1)]}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (None, "an object, not null"),
        ([], "an object, not a list"),
        ({"type": "like", "key": "n", "value": 1}, "is one of eq, ne, gt, gte, lt, lte, in, nin, and, or"),
        ({"type": ["eq"], "key": "n", "value": 1}, "is one of"),
        ({"type": "eq", "value": 1}, "needs `key`"),
        (compare("eq", "n", None), "not null"),
        (compare("eq", "n", [1]), "not a list"),
        (compare("eq", "n", {}), "not an object"),
        (compare("eq", "n", float("nan")), "not this number"),
        (compare("eq", "n", 10**400), "not this number"),
        (compare("gt", "n", True), "not true and false"),
        (compare("in", "n", 1), "is a list"),
        (compare("in", "n", [[1]]), "not a list"),
        ({"type": "and", "filters": []}, "at least one"),
        ({"type": "or"}, "at least one"),
        ({"type": "and", "filters": [1]}, "an object"),
        ({"type": "and", "filters": [compare("eq", "n", 1)], "key": "n"}, "has no 'key'"),
        (nested(MAX_LEVELS + 1), "at most 32 levels"),
    ],
)
def test_a_bad_filter_is_refused_with_what_would_be_right(wanted: Any, says: str) -> None:
    with pytest.raises(BadFilter, match=says):
        read_filter(wanted)


def test_the_deepest_filter_that_is_taken(tx: sqlite3.Connection) -> None:
    assert len(tables.passing(tx, read_filter(nested(MAX_LEVELS)))) == 1
