"""The layers of a project's confirmed files, within its limits: settings, hooks, command rules and skills.

A file with an error is skipped as a whole, with one sentence. It never prevents the start.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ferrule.config.check import check
from ferrule.config.keys import HookTable
from ferrule.config.layers import Layer, Values, merge, toml_layer
from ferrule.config.mcp_json import mcp_json_layer
from ferrule.config.narrow import narrowed
from ferrule.config.project import Kind, ProjectFile
from ferrule.config.trust import ProjectReading, text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.settings import HookName, ProjectText


class ProjectLayers(msgspec.Struct, frozen=True, kw_only=True):
    """A project's contribution. `values` are its settings without hooks, already narrowed to what it may set."""

    values: Values = {}
    hooks: Mapping[HookName, Sequence[HookTable]] = {}
    rules: tuple[ProjectText, ...] = ()
    skills: tuple[ProjectText, ...] = ()
    warnings: tuple[str, ...] = ()


def project_layers(reading: ProjectReading, env: Mapping[str, str], below: Values) -> ProjectLayers:
    """Build the layers of the files that are read. `below` is the user's configuration. Pure."""
    layers, warnings = list[Layer](), list[str]()
    for file in reading.files:
        try:
            layer = layer_of(reading.top, file, env)
        except UsageError as problem:
            warnings.append(f"{problem}; the file is passed over")
            continue
        if layer is not None:
            narrow, more = narrowed(layer, below)
            layers.append(narrow)
            warnings += more
    values = merge(layers)
    hooks = check(reading.top, {"hooks": values.pop("hooks", {})}).hooks
    if hooks and not reading.programs_hold:
        warnings.append(f"hooks of {reading.top} do not run, because a program of theirs is not as you confirmed it")
        hooks = {}
    servers, more = _whole_servers(reading.top, values.pop("mcp_servers", {}))
    return ProjectLayers(
        values={**values, "mcp_servers": servers},
        hooks=hooks,
        rules=tuple(_texts(reading, "rules")),
        skills=tuple(_texts(reading, "skill")),
        warnings=(*warnings, *more),
    )


def layer_of(top: str, file: ProjectFile, env: Mapping[str, str] | None) -> Layer | None:
    """Return the settings in one file, not narrowed; None for a file without any. Without `env`, variables stay as
    written. Raises `UsageError`."""
    source = os.path.join(top, file.path)
    match file.kind:
        case "settings":
            layer = toml_layer(source, file.data)
        case "servers":
            layer = mcp_json_layer(source, file.data, env)
        case _:
            return None
    check(source, layer.values)
    return layer


def _whole_servers(top: str, servers: object) -> tuple[dict[str, object], list[str]]:
    """Return the usable servers, and a sentence for each of the others."""
    assert isinstance(servers, Mapping)
    kept, warnings = dict[str, object](), list[str]()
    for name, table in servers.items():
        problem = msgspec.convert(table, McpServerSettings).problem
        if problem is None:
            kept[name] = table
        else:
            warnings.append(f"{top}: mcp_servers.{name} {problem}; the server is passed over")
    return kept, warnings


def _texts(reading: ProjectReading, kind: Kind) -> Iterator[ProjectText]:
    for file in reading.files:
        if file.kind == kind:
            yield ProjectText(text_of(os.path.join(reading.top, file.path)), file.data)
