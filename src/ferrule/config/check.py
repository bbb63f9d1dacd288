"""Explain what is wrong with a layer in one sentence: the file, the key, the value, and what is right."""

import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from ferrule.config.keys import ConfigTable, WorkspaceWriteTable
from ferrule.egress.names import BadDomain, DomainNames
from ferrule.protocol.errors import UsageError

ANY_TOOL = "*"
"""A matcher that Codex takes for all tools, although it is not a valid regular expression."""
TABLE = "sandbox_workspace_write"
LONGEST_VALUE = 60
"""Characters shown of a wrong value: enough to find it again."""


def check(source: str, values: Mapping[str, object]) -> ConfigTable:
    """Return the layer as a typed table. Raises `UsageError` for the first error; it names `source`."""
    try:
        table = msgspec.convert(values, ConfigTable)
    except msgspec.ValidationError as error:
        problem = _problem(values, ConfigTable, "") or str(error)
        raise UsageError(f"{source}: {problem}") from error
    except RecursionError as error:
        raise UsageError(f"{source}: tables or lists are nested too deep") from error
    for event, hooks in table.hooks.items():
        for hook in hooks:
            _check_matcher(source, event, hook.matcher)
    _check_network(source, table.sandbox_workspace_write)
    return table


def _check_network(source: str, table: WorkspaceWriteTable) -> None:
    def checked(key: str, read: Callable[[], object]) -> None:
        try:
            read()
        except BadDomain as error:
            raise UsageError(f"{source}: {TABLE}.{key}: {error}") from error

    access, hosts = table.network_access, table.hosts
    if not isinstance(access, bool):
        checked("network_access", lambda: DomainNames.listed(access))
    if hosts:
        from ferrule.egress.addresses import read_hosts

        checked("hosts", lambda: read_hosts(hosts))


def _check_matcher(source: str, event: str, matcher: str) -> None:
    try:
        re.compile("" if matcher == ANY_TOOL else matcher)
    except (re.error, OverflowError, RecursionError) as error:
        wrong = f"the matcher {_show(matcher)} of a {event} hook is not a regular expression"
        raise UsageError(f"{source}: {wrong}: {error}") from error


def _problem(value: object, wanted: Any, path: str) -> str | None:
    """Explain what is wrong with `value` where `wanted` is expected; None if nothing is."""
    wanted = _form_of(value, _without_none(wanted))
    if isinstance(value, Mapping):
        if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            return _table_problem(value, wanted, path)
        if get_origin(wanted) in (dict, Mapping) and get_args(wanted)[1] is not object:
            entry_type = get_args(wanted)[1]
            entries = (_problem(entry, entry_type, _join(path, key)) for key, entry in value.items())
            return next(filter(None, entries), None)
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return f"{path} must be {_describe(wanted)}, not {_show(value)}"
    return None


def _table_problem(value: Mapping[str, object], wanted: type[msgspec.Struct], path: str) -> str | None:
    hints = typing.get_type_hints(wanted, include_extras=True)
    for key, entry in value.items():
        if key not in hints:
            return f"unknown key {_join(path, key)}{_nearest(key, hints)}"
        problem = _problem(entry, hints[key], _join(path, key))
        if problem is not None:
            return problem
    return None


def _nearest(key: str, known: Mapping[str, object]) -> str:
    import difflib

    near = difflib.get_close_matches(key.lower().replace("-", "_"), known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known here are {', '.join(sorted(known))}"


def _join(path: str, key: str) -> str:
    plain = key.replace("_", "").replace("-", "").isalnum()
    shown = shorter(key if plain else f'"{key}"')
    return f"{path}.{shown}" if path else shown


def _without_none(wanted: Any) -> Any:
    if get_origin(wanted) in (Union, types.UnionType):
        rest = [one for one in get_args(wanted) if one is not type(None)]
        return rest[0] if len(rest) == 1 else wanted
    return wanted


def _form_of(value: object, wanted: Any) -> Any:
    """Return the one that is meant of a table and another form."""
    if get_origin(wanted) not in (Union, types.UnionType):
        return wanted
    tables = [one for one in get_args(wanted) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return tables[0] if isinstance(value, Mapping) and tables else wanted


def _describe(wanted: Any) -> str:
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(map(_describe, get_args(wanted)))
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return f"one of {', '.join(str(member.value) for member in wanted)}"
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return "a table"
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is typing.Annotated:
        return _describe_limits(arguments[1])
    if origin is tuple:
        return f"a list of {'strings' if arguments[0] is str else 'tables'}"
    if origin is dict or origin is Mapping:
        return "a table"
    if origin in (Union, types.UnionType):
        return " or ".join(map(_describe, arguments))
    return {str: "a string", bool: "true or false", float: "a number"}.get(wanted, str(wanted))


def _describe_limits(limits: msgspec.Meta) -> str:
    if limits.description is not None:
        return limits.description
    if limits.ge is None:
        return "a number above 0"
    return f"a whole number of at least {limits.ge}" + (f" and at most {limits.le}" if limits.le is not None else "")


def _show(value: object) -> str:
    """Return a TOML value as the user wrote it, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    return shorter(repr(value))


def shorter(text: str) -> str:
    """Return the beginning of a text, enough to find it again."""
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
