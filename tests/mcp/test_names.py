"""Names of MCP tools on the wire."""

import re
from itertools import islice, permutations

from hypothesis import given
from hypothesis import strategies as st

from ferrule.mcp.names import qualified_name

WIRE = re.compile(r"[A-Za-z0-9_-]{1,64}")


def test_plain_names_are_plain() -> None:
    assert qualified_name("github", "search-issues") == "mcp__github__search-issues"


def test_b103_long_and_foreign_names_fit_and_are_stable() -> None:
    server = "awslabs.billing-cost-management"
    tools = ["admin.tools/list", "Query all components", "検索", "x" * 70]
    names = [qualified_name(server, tool) for tool in tools]
    assert all(WIRE.fullmatch(name) for name in names)
    assert len(set(names)) == len(tools)
    assert all(name.startswith("mcp__awslabs_billing") for name in names)
    assert (
        names[0] == "mcp__awslabs_billing-cost-management__admin_tools_l_f6ac2aab1c8c"
    )  # pinned: stable over restarts


def test_b104_names_that_could_be_one_are_different_in_any_order() -> None:
    pairs = [
        ("s1", "send"), ("s2", "send"), ("s3", "search-a"), ("s3", "search_a"), ("s3", "search.a"),
        ("shell", "exec"), ("a__b", "c"), ("a", "b__c"), ("a_", "b"), ("a", "_b"),
    ]  # fmt: skip
    names = {pair: qualified_name(*pair) for pair in pairs}
    assert len(set(names.values())) == len(pairs)
    for order in islice(permutations(pairs), 50):
        assert {pair: qualified_name(*pair) for pair in order} == names


@given(st.tuples(st.text(min_size=1), st.text(min_size=1)), st.tuples(st.text(min_size=1), st.text(min_size=1)))
def test_b104_no_two_tools_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = qualified_name(*one), qualified_name(*other)
    assert all(WIRE.fullmatch(name) for name in names)
    assert (names[0] == names[1]) == (one == other)


@given(*[st.text("a_", min_size=1, max_size=6)] * 4)
def test_b104_underscores_do_not_confuse(a: str, b: str, c: str, d: str) -> None:
    assert (qualified_name(a, b) == qualified_name(c, d)) == ((a, b) == (c, d))
