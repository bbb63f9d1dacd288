"""Tools available by name: registered instances, classes and factories, and installed plugins.

The catalogue is global on purpose: `register_tool` in a module makes a tool known to every session of the process.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.protocol.json_text import JsonValue
from ferrule.tools.conversation import ConversationState

PLUGIN_GROUP = "ferrule.tools"
"""Entry points in this group are tools: their name, and an argument of `register_tool`."""


class Tool(msgspec.Struct, frozen=True):
    """A tool in a configuration: its name and parameters."""

    name: str
    params: Mapping[str, JsonValue] = {}


Registered = Any
"""An instance, a class with `create`, or a factory `f(conv_state=state, **params)`: distinguished when it is
resolved."""

_catalogue: dict[str, Registered] = {}
_plugins: dict[str, Callable[[], Registered]] | None = None


def register_tool(name: str, tool: Registered) -> None:
    """Register a tool as `name`: a `ToolDefinition` instance, a subclass with `create`, or a factory function.

    A later registration of the same name replaces the earlier one. Raises `UsageError` for anything else.
    """
    if not callable(tool):
        raise UsageError(f"{name!r}: {type(tool).__name__} is neither a tool, nor a class with create, nor a factory")
    _catalogue[name] = tool


def registered_tools() -> list[str]:
    """Return the names that can be resolved, including plugins."""
    return sorted({*_catalogue, *_installed()})


def resolve_tool(spec: Tool | str, conv_state: ConversationState) -> Sequence[Any]:
    """Create the tools that `spec` requests for this conversation. Raises `UsageError` for an unknown name."""
    spec = Tool(spec) if isinstance(spec, str) else spec
    registered = _lookup(spec.name)
    if registered is None:
        raise unknown_tool(spec.name, registered_tools())
    if spec.params and _is_instance_of_definition(registered):
        raise UsageError(f"tool {spec.name!r} is a fixed instance and takes no params")
    return made_for(registered, conv_state, spec.params)


def made_for(
    registered: Registered, conv_state: ConversationState, params: Mapping[str, JsonValue] = {}
) -> Sequence[Any]:
    """Create a registered tool's instances for this conversation; a registered instance is shared by all of them."""
    if _is_instance_of_definition(registered):
        return [registered]
    make = registered.create if isinstance(registered, type) else registered  # type: ignore[attr-defined]  # what else is there to register
    made = make(conv_state=conv_state, **params)
    return made if isinstance(made, Sequence) else [made]


def matching_names(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match `pattern`: a name, a glob (`read_*`), or a regular expression between slashes."""
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            expression = re.compile(pattern[1:-1])
        except re.error as error:
            raise UsageError(f"{pattern} is not a regular expression: {error}") from error
        return [name for name in names if expression.search(name)]
    is_glob = any(character in pattern for character in "*?[")
    return fnmatch.filter(names, pattern) if is_glob else [name for name in names if name == pattern]


def _lookup(name: str) -> Registered | None:
    if name in _catalogue:
        return _catalogue[name]
    load = _installed().get(name)
    return None if load is None else load()


def _installed() -> Mapping[str, Callable[[], Registered]]:
    global _plugins  # noqa: PLW0603 - part of the catalogue, read once
    if _plugins is None:
        from importlib.metadata import entry_points  # 5 % of a session's start, and few name a plugin

        _plugins = {point.name: point.load for point in entry_points(group=PLUGIN_GROUP)}
    return _plugins


def _is_instance_of_definition(registered: Registered) -> bool:
    from ferrule.tools.handler import ToolHandler

    return isinstance(registered, ToolHandler)


def unknown_tool(name: str, known: Iterable[str]) -> UsageError:
    """Build the error for an unknown tool name, with similar names."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=3)
    return UsageError(f"unknown tool {name!r}{'; did you mean ' + ' or '.join(near) + '?' if near else ''}")
