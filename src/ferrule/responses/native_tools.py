"""Tools of the Responses API that the client runs and that have items of their own, for models that know functions.

The model calls a function, the client sees the native item, and the client's output goes back as the function's.
Source: `apply_patch`, `shell`, `local_shell`, `computer` and `computer_use_preview` of the Responses API.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from ferrule.containers.screen import ScreenAction
from ferrule.hosted.shell_output import told
from ferrule.protocol.computer import ACTION, ACTIONS
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import (
    CreateFile,
    DeleteFile,
    FunctionCall,
    FunctionCallOutput,
    OutputBody,
    ResponseItem,
    UpdateFile,
    make_item,
)
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonObject, JsonValue, decode
from ferrule.protocol.specs import ResponsesApiTool


def _object(properties: JsonObject, required: list[str]) -> JsonSchema:
    return JsonSchema({"type": "object", "properties": properties, "required": required, "additionalProperties": False})


class NativeTool:
    """One such tool. `kind` is its type in `tools`, `call` and `output` are the types of its items."""

    kind: ClassVar[str]
    call: ClassVar[str]
    output: ClassVar[str]
    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[JsonSchema]

    def is_meant(self, tool: JsonObject) -> bool:
        """Return whether this is the declared tool."""
        return tool.get("type") == self.kind

    def function(self, name: str, tool: JsonObject) -> ResponsesApiTool:
        """Return the function that the upstream is told of instead of `tool`."""
        return ResponsesApiTool(name=name, description=self.description, parameters=self.parameters)

    def item(self, call: FunctionCall) -> JsonObject:
        """Return the client's item for a call, without its id. Raises `RespondToModel` for arguments that are no call
        of this tool."""
        return {"type": self.call, "call_id": call.call_id, **self.fields(decode(call.arguments))}

    def fields(self, arguments: JsonValue) -> JsonObject:
        """Return the item's own fields."""
        raise NotImplementedError

    def arguments(self, item: JsonObject) -> JsonObject:
        """Return the function's arguments for an item that the client sends back."""
        raise NotImplementedError

    def answer(self, item: JsonObject) -> OutputBody:
        """Return what the model reads of the client's output."""
        raise NotImplementedError

    def as_function_call(self, item: JsonObject, name: str) -> ResponseItem:
        """Return a native call as the upstream knows it."""
        arguments = msgspec.json.encode(self.arguments(item)).decode()
        return make_item(FunctionCall(call_id=call_id_of(item), name=name, arguments=arguments))

    def as_function_output(self, item: JsonObject) -> ResponseItem:
        """Return a native output as the upstream knows it."""
        return make_item(FunctionCallOutput(call_id=call_id_of(item), output=self.answer(item)))


def call_id_of(item: Mapping[str, JsonValue]) -> str:
    """Return the id of a call, or of the call that an output answers: local_shell has it in `id` alone."""
    return str(item.get("call_id") or item.get("id") or "")


def _convert(arguments: JsonValue, kind: Any, name: str) -> Any:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        raise RespondToModel(f"{name}: {error}") from error


class ApplyPatch(NativeTool):
    """Changes to files, one operation a call."""

    kind, call, output, name = "apply_patch", "apply_patch_call", "apply_patch_call_output", "apply_patch"
    description = (
        "Create, update or delete one file. `diff` is a V4A diff without envelope: context lines begin with a space, "
        "removed ones with -, added ones with +, and @@ with a line of the file finds the place. In a new file each "
        "line begins with +. A deletion has no diff."
    )
    parameters = _object(
        {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string", "description": "The file's path, relative to the workspace"},
            "diff": {"type": "string"},
        },
        ["type", "path"],
    )

    def fields(self, arguments: JsonValue) -> JsonObject:
        """Return the operation."""
        operation = _convert(arguments, CreateFile | UpdateFile | DeleteFile, self.name)
        return {"operation": msgspec.to_builtins(operation)}

    def arguments(self, item: JsonObject) -> JsonObject:
        """Return the operation's fields."""
        operation = item.get("operation")
        return operation if isinstance(operation, dict) else {}

    def answer(self, item: JsonObject) -> OutputBody:
        """Return the client's text, or how the operation ended."""
        text = item.get("output")
        return text if isinstance(text, str) and text else f"The operation {item.get('status', 'completed')}."


class _Commands(msgspec.Struct, frozen=True, omit_defaults=True):
    commands: Annotated[list[str], msgspec.Meta(min_length=1)]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class Shell(NativeTool):
    """Commands that the client runs, with `environment` local."""

    kind, call, output, name = "shell", "shell_call", "shell_call_output", "shell"
    description = "Run shell commands, one after the other, and return the output of each."
    parameters = _object(
        {
            "commands": {"type": "array", "items": {"type": "string"}, "description": "Each a script for the shell"},
            "timeout_ms": {"type": "integer", "description": "Time limit of each command in milliseconds"},
            "max_output_length": {"type": "integer", "description": "Characters of output to return"},
        },
        ["commands"],
    )

    def is_meant(self, tool: JsonObject) -> bool:
        """Return whether the client runs the commands of this tool."""
        environment = tool.get("environment")
        where = environment.get("type") if isinstance(environment, dict) else "local"
        return super().is_meant(tool) and where == "local"

    def fields(self, arguments: JsonValue) -> JsonObject:
        """Return the commands."""
        action = msgspec.to_builtins(_convert(arguments, _Commands, self.name))
        whole = {"timeout_ms": None, "max_output_length": None} | action
        return {"action": whole, "environment": {"type": "local"}}

    def arguments(self, item: JsonObject) -> JsonObject:
        """Return the commands and their limits."""
        return _filled(item.get("action"))

    def answer(self, item: JsonObject) -> OutputBody:
        """Return the output of each command, and how it ended."""
        given = item.get("output")
        entries = [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
        return "\n\n".join(map(told, entries)) if entries else str(given or "")


class _Exec(msgspec.Struct, frozen=True, omit_defaults=True):
    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    working_directory: str | None = None
    timeout_ms: int | None = None
    env: dict[str, str] = {}
    user: str | None = None


class LocalShell(NativeTool):
    """One command that the client runs, the older way."""

    kind, call, output, name = "local_shell", "local_shell_call", "local_shell_call_output", "local_shell"
    description = "Run one command and return its output."
    parameters = _object(
        {
            "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments"},
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer", "description": "Time limit in milliseconds"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        ["command"],
    )

    def fields(self, arguments: JsonValue) -> JsonObject:
        """Return the command."""
        action = msgspec.to_builtins(_convert(arguments, _Exec, self.name))
        return {"action": {"type": "exec", "env": {}} | action}

    def arguments(self, item: JsonObject) -> JsonObject:
        """Return the command, its directory and limits."""
        return {key: value for key, value in _filled(item.get("action")).items() if key != "type"}

    def answer(self, item: JsonObject) -> OutputBody:
        """Return the client's text."""
        return str(item.get("output") or "")


class _Actions(msgspec.Struct, frozen=True):
    actions: Annotated[list[ScreenAction], msgspec.Meta(min_length=1)]


_UNSAID: Mapping[str, JsonObject] = {"click": {"button": "left"}, "scroll": {"scroll_x": 0, "scroll_y": 0}}


def _whole(action: ScreenAction) -> JsonObject:
    """Return an action with the fields that the API always has, and its numbers as whole ones."""
    fields: JsonObject = {name: _rounded(value) for name, value in msgspec.to_builtins(action).items()}
    return _UNSAID.get(str(fields["type"]), {}) | fields


def _rounded(value: JsonValue) -> JsonValue:
    if isinstance(value, float):
        return round(value)
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return {name: _rounded(entry) for name, entry in value.items()} if isinstance(value, dict) else value


class Computer(NativeTool):
    """Actions on a screen that the client shows, several a call."""

    kind, call, output, name = "computer", "computer_call", "computer_call_output", "computer"
    description = (
        "Act on the screen: the actions run in order, then a screenshot comes back. Coordinates are pixels from the "
        "top left. Begin with a screenshot."
    )
    parameters = ACTIONS

    def fields(self, arguments: JsonValue) -> JsonObject:
        """Return the actions."""
        read = _convert(arguments, _Actions, self.name)
        return {"actions": list(map(_whole, read.actions)), "pending_safety_checks": []}

    def arguments(self, item: JsonObject) -> JsonObject:
        """Return the actions; an item of the older form has one."""
        given = item.get("actions")
        actions = given if isinstance(given, list) else [item["action"]] if item.get("action") else []
        return {"actions": actions}

    def answer(self, item: JsonObject) -> OutputBody:
        """Return the screenshot."""
        shot = item.get("output")
        given = shot if isinstance(shot, dict) else {}
        parts: list[ContentPart] = [InputText("The screen after the actions:")]
        url, file_id = given.get("image_url"), given.get("file_id")
        if isinstance(url, str) or isinstance(file_id, str):
            parts.append(InputImage(image_url=url, file_id=file_id))
        return tuple(parts)


class ComputerPreview(Computer):
    """Actions on a screen, one a call."""

    kind = "computer_use_preview"
    description = (
        "Act on the screen: one action, then a screenshot comes back. Coordinates are pixels from the top left. Begin "
        "with a screenshot."
    )
    parameters = JsonSchema(ACTION)

    def function(self, name: str, tool: JsonObject) -> ResponsesApiTool:
        """Return the function, which names the size of the screen."""
        size = f"{tool.get('display_width')} x {tool.get('display_height')} pixels ({tool.get('environment')})"
        description = f"{self.description} The screen has {size}."
        return ResponsesApiTool(name=name, description=description, parameters=self.parameters)

    def fields(self, arguments: JsonValue) -> JsonObject:
        """Return the action."""
        return {"action": _whole(_convert(arguments, ScreenAction, self.name)), "pending_safety_checks": []}

    def arguments(self, item: JsonObject) -> JsonObject:
        """Return the action's fields."""
        action = item.get("action")
        return action if isinstance(action, dict) else {}


def _filled(value: JsonValue) -> JsonObject:
    """Return an object without the fields that are null."""
    return {key: entry for key, entry in value.items() if entry is not None} if isinstance(value, dict) else {}


NATIVE_TOOLS: tuple[NativeTool, ...] = (ApplyPatch(), Shell(), LocalShell(), Computer(), ComputerPreview())
