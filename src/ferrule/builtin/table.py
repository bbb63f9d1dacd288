"""List the built-in tools, with all that a session reads of them before the model's first call.

A tool is one module, `ferrule.builtin.NAME`, whose `TOOL` is what `register_tool` takes. Importing it imports pydantic;
so what the model is told of it lies beside this module as `tools.json`, which `scripts/schemas` makes from the tools
and a test compares with them.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from ferrule.builtin.escalation import described, fitting
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import (
    ApplyPatchTool,
    ComputerTool,
    ComputerUsePreview,
    FreeformTool,
    FreeformToolFormat,
    LocalShell,
    ResponsesApiTool,
    ShellTool,
    ToolSearchTool,
    ToolSpec,
)
from ferrule.tools.catalogue import made_for
from ferrule.tools.conversation import ConversationState
from ferrule.tools.registry import ToolKey

NAMES = (
    "exec_command",
    "write_stdin",
    "shell_command",
    "shell",
    "local_shell",
    "native_shell",
    "apply_patch",
    "native_apply_patch",
    "update_plan",
    "read_file",
    "list_dir",
    "grep_files",
    "execute_bash",
    "bash",
    "glob",
    "grep",
    "view_image",
    "request_user_input",
    "spawn_agent",
    "send_input",
    "wait",
    "resume_agent",
    "close_agent",
    "list_agents",
    "get_memory",
    "think",
    "finish",
    "task_tracker",
    "file_editor",
    "str_replace_based_edit_tool",
    "js_repl",
    "js_repl_reset",
    "python",
    "tool_search",
    "search_tool_bm25",
    "web_search",
    "open_page",
    "find_in_page",
    "file_search",
    "computer",
    "computer_use_preview",
    "open_url",
    "image_generation",
)
"""The modules, in the order in which their tools are listed."""

ALIASES = {"container.exec": "shell", "wait_agent": "wait"}
"""Older names of tools: answered, but not shown to the model."""

SCRIPTS = "commands"
"""The argument of the native shell: each entry is a separate script."""

FILE = Path(__file__).with_name("tools.json")


class Freeform(msgspec.Struct, frozen=True):
    """The descriptions for models that were trained on the freeform form of a tool."""

    description: str
    format: FreeformToolFormat


SCREENS = ("computer", "computer_use_preview")
"""The forms of the screen: a session has one."""
OPENS_PAGES = "open_url"
"""Goes with a screen."""

NativeSpec = LocalShell | ShellTool | ApplyPatchTool | ToolSearchTool | ComputerTool | ComputerUsePreview
"""Tools that the API describes to the model."""


class Builtin(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One built-in tool as data.

    `name`: how it is asked for; `called`: the name that its calls carry, with `namespace`. `parallel`: its calls may
    run beside others. `read_only`: it changes nothing. `hidden`: it is answered, but not shown to the model.
    `starts_processes`: the sandbox and the login shell are made ready with the session. `command_field`: the argument
    that holds what it runs (a script, an argv, or several scripts). `description` may hold `{sandbox}` and
    `{roles}`;
    `escalates`: it has the arguments by which a call asks for more rights. `native`: the API describes it to the model;
    a screen is a function for models that lack it.
    """

    name: str
    called: str
    namespace: str | None = None
    parallel: bool = False
    read_only: bool = False
    hidden: bool = False
    starts_processes: bool = False
    command_field: str | None = None
    description: str = ""
    windows_description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    escalates: bool = False
    freeform: Freeform | None = None
    native: NativeSpec | None = None

    def spec(self, state: ConversationState) -> ToolSpec:
        """Return the spec that the model sees. Imports nothing heavy."""
        if self.name in SCREENS and state.profile.computer == "function":
            return self.function(state)
        if isinstance(self.native, ComputerTool):
            return ComputerTool(function=self.function(state))
        if isinstance(self.native, ComputerUsePreview):
            width, height = state.computer.display_width, state.computer.display_height
            return msgspec.structs.replace(
                self.native, display_width=width, display_height=height, function=self.function(state)
            )
        if self.native is not None:
            return self.native
        if self.freeform is not None and state.profile.apply_patch == "freeform":
            return FreeformTool(name=self.called, description=self.freeform.description, format=self.freeform.format)
        return self.function(state)

    def function(self, state: ConversationState) -> ResponsesApiTool:
        """Return the tool as a function."""
        parameters = JsonSchema(encoded=msgspec.json.format(bytes(self.parameters), indent=-1))
        return ResponsesApiTool(
            name=self.called,
            description=described(self.description, self.windows_description, state),
            parameters=fitting(parameters, state.permissions) if self.escalates else parameters,
        )

    def create(self, state: ConversationState) -> Sequence[Any]:
        """Return the tool, ready to run."""
        module = import_module(f"ferrule.builtin.{ALIASES.get(self.name, self.name)}")
        return made_for(module.TOOL, state)


BUILTINS: Mapping[str, Builtin] = {
    tool.name: tool for tool in msgspec.json.decode(FILE.read_bytes(), type=tuple[Builtin, ...])
}

COMMAND_FIELDS: Mapping[ToolKey, str] = {
    (tool.namespace, tool.called): tool.command_field for tool in BUILTINS.values() if tool.command_field is not None
}
"""Tools that run a command, by their keys, and the argument that holds it."""
