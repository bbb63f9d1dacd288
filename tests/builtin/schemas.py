"""The checked-in data of the built-in tools, made from the tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ferrule.builtin.execution import CommandTool
from ferrule.builtin.table import ALIASES, FILE, NAMES, SCREENS, Builtin, Freeform, NativeSpec
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.specs import FreeformTool, ResponsesApiTool
from ferrule.tools.definition import ToolDefinition
from tests.builtin.states import conversation

_FREEFORM = conversation(Path.cwd(), profile=ModelProfile(name="test", apply_patch="freeform"))
_FUNCTION = conversation(Path.cwd(), profile=ModelProfile(name="test", apply_patch="function"))


def tools() -> Iterator[Builtin]:
    """Every tool as data, in the order of the table, then the older names."""
    for name, module in [*((name, name) for name in NAMES), *ALIASES.items()]:
        entry = Builtin(name=name, called=name)
        (tool,) = entry.create(_FUNCTION)
        (freeform,) = entry.create(_FREEFORM)
        called = name if name != module else tool.name
        yield as_data(name, called, tool, freeform.spec, hidden=name != module)


def as_data(name: str, called: str, tool: ToolDefinition[Any, Any], freeform: object, *, hidden: bool) -> Builtin:
    """One tool as data."""
    spec = tool.spec
    is_function = isinstance(spec, ResponsesApiTool) or name in SCREENS
    command = tool if isinstance(tool, CommandTool) else None
    parameters = tool.parameters() if name in SCREENS else ToolDefinition.parameters(tool)
    return Builtin(
        name=name,
        called=called,
        namespace=tool.namespace,
        parallel=tool.parallel and not hidden,
        read_only=tool.annotations.readOnlyHint,
        hidden=hidden,
        starts_processes=tool.starts_processes,
        command_field=tool.command_field,
        description=getattr(tool, "template", tool.description if is_function else ""),
        windows_description=command.windows_template if command else None,
        parameters=msgspec.Raw(parameters.encoded if is_function else b"null"),
        escalates=command is not None,
        freeform=Freeform(freeform.description, freeform.format) if isinstance(freeform, FreeformTool) else None,
        native=spec if isinstance(spec, NativeSpec) else None,
    )


def generate() -> bytes:
    """The content of `tools.json`."""
    return msgspec.json.format(msgspec.json.encode(list(tools())), indent=1) + b"\n"


if __name__ == "__main__":
    FILE.write_bytes(generate())
