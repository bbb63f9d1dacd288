"""The model's calls, decoded once for every way of showing them."""

import os
from collections.abc import Mapping
from typing import cast

import msgspec

from ferrule.builtin.command_forms import Command, given_command, patch_in, patch_text
from ferrule.builtin.table import COMMAND_FIELDS
from ferrule.execpolicy import command_text
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import PlanStep
from ferrule.protocol.items import (
    ApplyPatchCall,
    ComputerCall,
    CustomToolCall,
    FunctionCall,
    ItemView,
    LocalShellCall,
    ShellCall,
    ToolSearchCall,
)
from ferrule.protocol.json_text import JsonValue, decode

INVALID = "Invalid tool call"
LONGEST_ARGUMENT = 60
"""Characters shown of one argument; the whole is in the session's file and under `--json`."""

_MCP = "mcp__"


class CommandCall(msgspec.Struct, frozen=True):
    """A command to run; `text` is the script without the shell around it."""

    text: str


class InputCall(msgspec.Struct, frozen=True):
    """Input for a command that runs, or, without any, a wait for it. What it brings belongs to that command."""

    name: str
    arguments: JsonValue
    text: str


class PatchedFile(msgspec.Struct, frozen=True):
    """A file that a patch touches, as the patch names it: add, delete or update."""

    kind: str
    path: str


class PatchCall(msgspec.Struct, frozen=True):
    """A patch to files. No files: the patch cannot be parsed."""

    files: tuple[PatchedFile, ...]


class PlanCall(msgspec.Struct, frozen=True):
    """A plan; a `PlanUpdate` event shows it."""

    arguments: JsonValue


class McpCall(msgspec.Struct, frozen=True):
    """A call of an MCP server's tool."""

    server: str
    tool: str
    arguments: JsonValue


class ToolCall(msgspec.Struct, frozen=True):
    """A call of any other tool; `arguments` is its JSON, or the text of a freeform call."""

    name: str
    arguments: JsonValue


class InvalidCall(msgspec.Struct, frozen=True):
    """A call whose arguments cannot be parsed; `text` is the raw input."""

    name: str
    text: str


Call = CommandCall | InputCall | PatchCall | PlanCall | McpCall | ToolCall | InvalidCall


def read_call(view: ItemView) -> Call | None:
    """Decode an item's call, or return None for an item that is not a call of Ferrule's tools."""
    match view:
        case FunctionCall(name=name, namespace=namespace, arguments=arguments):
            return _function_call(name, namespace, arguments)
        case CustomToolCall(name="apply_patch", input=text):
            return _patch(patch_text(text) or text)
        case CustomToolCall(name=name, input=text):
            return ToolCall(name, text)
        case LocalShellCall(action=action):
            return _command(action.command)
        case ShellCall(action=action):
            return _command("\n".join(action.commands))
        case ApplyPatchCall(operation=operation):
            kind = str(operation.__struct_config__.tag).removesuffix("_file")
            return PatchCall((PatchedFile("add" if kind == "create" else kind, operation.path),))
        case ComputerCall():
            return ToolCall("computer", {"actions": [msgspec.json.decode(action) for action in view.every_action]})
        case ToolSearchCall(execution="client", arguments=arguments):
            return ToolCall("tool_search", msgspec.json.decode(arguments))
    return None


def planned_in(call: PlanCall) -> tuple[PlanStep, ...]:
    """Return the plan that a call brought; none where it is not one."""
    try:
        return msgspec.convert(call.arguments, _Planned).plan
    except msgspec.ValidationError:
        return ()


class _Planned(msgspec.Struct, frozen=True):
    plan: tuple[PlanStep, ...]


def call_line(call: Call) -> str:
    """Describe a call for people; a command may have several lines."""
    match call:
        case CommandCall(text=text):
            return f"$ {text}"
        case InputCall(text=text):
            return f"Input {msgspec.json.encode(text).decode()}"
        case PatchCall(files=files):
            return f"Edit {', '.join(file.path for file in files)}" if files else INVALID
        case PlanCall():
            return "Plan"
        case McpCall(server=server, tool=tool, arguments=arguments):
            return f"{server}.{tool}({_arguments(arguments)})"
        case ToolCall(name=name, arguments=arguments):
            return f"{name}({_arguments(arguments)})"
        case InvalidCall():
            return INVALID


def mcp_part(part: ContentPart) -> JsonValue:
    """Return a part of a result as MCP writes it."""
    match part:
        case InputText(text=text):
            return {"type": "text", "text": text}
        case InputImage(image_url=str(url)) if url.startswith("data:") and ";base64," in url:
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            return {"type": "image", "data": data, "mimeType": kind}
    return cast("JsonValue", msgspec.to_builtins(part))


def _command(command: Command, workdir: JsonValue = None) -> Call:
    """Return a command, or the patch that it applies, in `workdir`."""
    found = patch_in(command)
    if found is None:
        return CommandCall(command if isinstance(command, str) else command_text(command))
    patch = _patch(found.text)
    folder = os.path.join(workdir if isinstance(workdir, str) else "", found.workdir or "")
    return PatchCall(tuple(PatchedFile(file.kind, os.path.join(folder, file.path)) for file in patch.files))


def _function_call(name: str, namespace: str | None, text: str) -> Call:
    try:
        arguments = decode(text or "{}")
    except RespondToModel:
        return InvalidCall(name, text)
    if not isinstance(arguments, Mapping):
        return InvalidCall(name, text)
    if namespace is None and (given := _input_of(name, arguments)) is not None:
        return InputCall(name, arguments, given)
    field = COMMAND_FIELDS.get((namespace, name))
    if field is not None:
        command = given_command(arguments, field)
        if name == "execute_bash" and command == "":
            return ToolCall(name, arguments)  # a reset
        return InvalidCall(name, text) if command is None else _command(command, arguments.get("workdir"))
    if namespace is None and name == "apply_patch":
        patch = patch_text(arguments)
        return InvalidCall(name, text) if patch is None else _patch(patch)
    if namespace is None and name == "update_plan":
        return PlanCall(arguments)
    flat = f"{namespace}__{name}" if namespace else name
    server, found, tool = flat.removeprefix(_MCP).partition("__")
    return McpCall(server, tool, arguments) if flat.startswith(_MCP) and found else ToolCall(flat, arguments)


def _input_of(name: str, arguments: Mapping[str, JsonValue]) -> str | None:
    """Return the input that a call has for a command that runs, empty for a wait; None for any other call."""
    if name == "write_stdin":
        given = arguments.get("chars")
    elif name == "execute_bash" and arguments.get("is_input"):
        given = arguments.get("command")
    else:
        return None
    return given if isinstance(given, str) else ""


def _patch(text: str) -> PatchCall:
    from ferrule.patch import AddFile, DeleteFile, PatchError, UpdateFile, parse

    try:
        hunks = parse(text).hunks
    except PatchError:
        return PatchCall(())
    kinds = {AddFile: "add", DeleteFile: "delete", UpdateFile: "update"}
    return PatchCall(tuple(PatchedFile(kinds[type(hunk)], hunk.path) for hunk in hunks))


def _arguments(arguments: JsonValue) -> str:
    if not isinstance(arguments, Mapping):
        return _short(arguments)
    return ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())


def _short(value: JsonValue) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST_ARGUMENT else f"{text[:LONGEST_ARGUMENT]}…"
