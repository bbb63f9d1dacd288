"""What a trusted project may set: a row for every key there is, and each row in both directions."""

import typing
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec
import pytest

from ferrule.config.check import check
from ferrule.config.keys import ConfigTable
from ferrule.config.layers import Layer
from ferrule.config.narrow import MAY_SET, Rows, narrowed, search, yours_only


def tables_in(hint: Any) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """The tables that a key's type holds, and whether they stand under names of their own (`*.`)."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield "", hint
    for argument in get_args(hint):
        inside = "*." if get_origin(hint) is dict else ""
        yield from ((inside + path, table) for path, table in tables_in(argument))


def all_keys(table: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for key, hint in typing.get_type_hints(table, include_extras=True).items():
        yield prefix + key
        for path, inner in tables_in(hint):
            yield from all_keys(inner, f"{prefix}{key}.{path}")


def row_of(key: str) -> Any:
    """The rule for a key, its own or that of a table that only the user may set."""
    row: Any = MAY_SET
    for part in key.split("."):
        if row in (yours_only, search):
            return row
        row = row.get(part)
    return row


def all_rows(rows: Rows, prefix: str = "") -> Iterator[str]:
    for key, row in rows.items():
        if key != "*":
            yield prefix + key
        if not callable(row):
            yield from all_rows(row, f"{prefix}{key}.")


def test_s16_every_key_has_a_row() -> None:
    keys = list(all_keys(ConfigTable))
    assert len(keys) > 70 and "mcp_servers.*.approval" in keys and "hooks.*.timeout" in keys
    assert [key for key in keys if row_of(key) is None] == []


def test_every_row_has_a_key() -> None:
    assert set(all_rows(MAY_SET)) <= set(all_keys(ConfigTable))


def told(wanted: dict[str, Any], yours: dict[str, Any]) -> tuple[dict[str, object], list[str]]:
    for values in (wanted, yours):
        check("test", values)
    layer, warnings = narrowed(Layer("theirs", wanted), yours)
    return dict(layer.values), warnings


ORDERS: list[tuple[str, list[object], int]] = [  # values from the narrowest to the widest; the default
    ("confirmation_policy", ["always", "risky", "never"], 2),
    ("approval_policy", ["untrusted", "on-request", "on-failure", "never"], 1),
    ("sandbox_mode", ["read-only", "workspace-write", "danger-full-access"], 1),
    ("container.read_only", [True, False], 1),
    ("web_search", ["disabled", "cached", "live"], 0),
    ("accept_no_sandbox", [False, True], 0),
    ("features.shell_tool", [False, True], 1),
    (
        "sandbox_workspace_write.network_access",
        [False, ["a.b.example"], ["a.b.example", "c.example"], ["*.b.example", "c.example"], True],
        0,
    ),
    ("sandbox_workspace_write.caches", [False, True], 0),
    ("sandbox_workspace_write.exclude_slash_tmp", [True, False], 1),
    ("sandbox_workspace_write.exclude_tmpdir_env_var", [True, False], 1),
]


def at(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(("key", "order", "default"), ORDERS, ids=[key for key, _, _ in ORDERS])
def test_s16_what_has_an_order_is_only_narrowed(key: str, order: list[object], default: int) -> None:
    for limit, yours in [(default, {}), *((place, at(key, value)) for place, value in enumerate(order))]:
        for place, wanted in enumerate(order):
            kept, warnings = told(at(key, wanted), yours)
            if place <= limit:
                assert (kept, warnings) == (at(key, wanted), [])
            else:
                (warning,) = warnings
                assert warning.startswith(f"theirs: {key} is ignored, because ") and "is wider than your" in warning
                assert wanted not in (kept.get(key), *kept.values())


@pytest.mark.parametrize(
    ("wanted", "yours", "kept"),
    [
        ("container", "workspace-write", True),
        ("container", "danger-full-access", True),
        ("container", "container", True),
        ("container", "read-only", False),
        ("read-only", "container", False),
        ("workspace-write", "container", False),
        ("danger-full-access", "container", False),
    ],
)
def test_a_container_hides_files_and_read_only_keeps_them(wanted: str, yours: str, kept: bool) -> None:
    """Neither replaces the other."""
    left, warnings = told({"sandbox_mode": wanted}, {"sandbox_mode": yours})
    assert bool(left) is kept and len(warnings) == (not kept)


@pytest.mark.parametrize(
    "key", ["max_turns", "max_tool_calls", "run_timeout", "tool_output_token_limit", "model_max_output_tokens"]
)
def test_s16_a_limit_is_only_lowered(key: str) -> None:
    assert told({key: 5}, {}) == ({key: 5}, [])
    assert told({key: 5}, {key: 5}) == ({key: 5}, [])
    assert told({key: 6}, {key: 5}) == ({}, [f"theirs: {key} is ignored, because 6 is more than your 5"])


@pytest.mark.parametrize(
    ("wanted", "yours"),
    [
        ({"tools": ["*"]}, {"tools": ["read_file"]}),
        ({"tools": ["*"]}, {"profile": "generic"}),
        ({"profile": "all"}, {"tools": ["read_file"]}),
        ({"profile": "all"}, {"profile": "generic"}),
        ({"instructions": "Push at once."}, {"instructions": "Never push."}),
        ({"features": {"unified_exec": True}}, {"features": {"unified_exec": False}}),
    ],
)
def test_s16_what_you_chose_stays(wanted: dict[str, Any], yours: dict[str, Any]) -> None:
    kept, (warning,) = told(wanted, yours)
    assert "you have set it yourself" in warning and kept in ({}, {"features": {}})
    assert told(wanted, {}) == (wanted, [])


def test_a_search_of_yours_is_only_switched_off() -> None:
    yours = {"web_search": {"backend": "searxng", "base_url": "http://127.0.0.1:8888"}}
    assert told({"web_search": "disabled"}, yours) == ({"web_search": "disabled"}, [])
    for wanted in ("cached", "live"):
        assert told({"web_search": wanted}, yours) == (
            {}, ["theirs: web_search is ignored, because yours is a table"]
        )  # fmt: skip


@pytest.mark.parametrize(
    "wanted",
    [
        {"web_search": {"backend": "searxng", "base_url": "http://evil"}},
        {"model_provider": "evil"},
        {"model_providers": {"openai": {"base_url": "http://evil/v1"}}},
        {"hosted_tools": ["image_generation"]},
        {"image_generation": {"base_url": "http://evil/v1"}},
        {"projects": {"/": {"trust_level": "trusted"}}},
        {"shell_environment_policy": {"ignore_default_excludes": True}},
        {"sandbox_workspace_write": {"writable_roots": ["/"]}},
    ],
)
def test_s16_what_only_you_may_set(wanted: dict[str, Any]) -> None:
    kept, (warning,) = told(wanted, {})
    assert "only your own configuration may set it" in warning and kept in ({}, {"sandbox_workspace_write": {}})


def test_s16_a_server_of_the_project_is_its_own_and_permits_no_calls() -> None:
    theirs = {"command": "x", "approval": "allow"}
    kept, warnings = told({"mcp_servers": {"docs": theirs}}, {})
    assert kept == {"mcp_servers": {"docs": {"command": "x"}}}
    assert warnings == ["theirs: mcp_servers.docs.approval is ignored, because allow is wider than your auto"]
    kept, warnings = told({"mcp_servers": {"docs": theirs}}, {"mcp_servers": {"docs": {"command": "mine"}}})
    assert kept == {"mcp_servers": {}} and "you have one of that name" in warnings[0]
    prompt = {"mcp_servers": {"docs": {"command": "x", "approval": "prompt"}}}
    assert told(prompt, {}) == (prompt, [])


def test_a_key_without_a_row_is_yours() -> None:
    layer, (warning,) = narrowed(Layer("theirs", {"brand_new": 1}), {})
    assert layer.values == {} and "only your own configuration may set it" in warning
