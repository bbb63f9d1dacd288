"""Which built-in tools there are. A folder's package gives the spec without pydantic; `create` imports the rest."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

import msgspec

from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState
from ferrule.tools.registry import NATIVE, ToolKey

SCRIPTS = "commands"
"""The argument of the native shell: each entry is a script of its own."""


class _Package(Protocol):
    def spec(self, state: ConversationState) -> ToolSpec: ...
    def create(self, state: ConversationState) -> Sequence[Any]: ...


class Builtin(msgspec.Struct, frozen=True):
    """One built-in tool. `parallel`: its calls may run beside others. `read_only`: it changes nothing. `hidden`: it is
    answered, but not shown to the model (an older name of another tool). `called`: the name that calls carry, and
    `folder`: where the tool lives, if these are not its own name. `commands`: it starts processes, so the sandbox and
    the login shell are made ready with the session."""

    name: str
    parallel: bool = False
    read_only: bool = False
    namespace: str | None = None
    hidden: bool = False
    called: str | None = None
    folder: str | None = None
    commands: bool = False

    @property
    def _package(self) -> _Package:
        return cast("_Package", import_module(f"ferrule.builtin.{self.folder or self.name}"))

    def spec(self, state: ConversationState) -> ToolSpec:
        """What the model sees. Cheap: nothing heavy is imported."""
        return self._package.spec(state)

    def create(self, state: ConversationState) -> Sequence[Any]:
        """The tool, ready to run."""
        return self._package.create(state)


BUILTINS = {
    tool.name: tool
    for tool in (
        Builtin("exec_command", parallel=True, commands=True),
        Builtin("write_stdin"),
        Builtin("shell_command", parallel=True, commands=True),
        Builtin("shell", parallel=True, commands=True),
        Builtin("container.exec", hidden=True, folder="shell"),
        Builtin("local_shell", parallel=True, namespace=NATIVE, commands=True),
        Builtin("native_shell", parallel=True, namespace=NATIVE, called="shell", commands=True),
        Builtin("apply_patch"),
        Builtin("native_apply_patch", namespace=NATIVE, called="apply_patch"),
        Builtin("update_plan", read_only=True),
        Builtin("read_file", parallel=True, read_only=True),
        Builtin("list_dir", parallel=True, read_only=True),
        Builtin("grep_files", parallel=True, read_only=True),
        Builtin("execute_bash", commands=True),
        Builtin("bash", commands=True),
        Builtin("glob", parallel=True, read_only=True),
        Builtin("grep", parallel=True, read_only=True),
        Builtin("view_image", parallel=True, read_only=True),
        Builtin("request_user_input", read_only=True),
        Builtin("get_memory", parallel=True, read_only=True),
        Builtin("think", parallel=True, read_only=True),
        Builtin("finish", read_only=True),
        Builtin("task_tracker"),
        Builtin("file_editor"),
        Builtin("str_replace_based_edit_tool"),
        Builtin("js_repl", commands=True),
        Builtin("js_repl_reset", read_only=True),
        Builtin("tool_search", parallel=True, read_only=True, namespace=NATIVE),
        Builtin("search_tool_bm25", parallel=True, read_only=True),
    )
}

COMMAND_FIELDS: Mapping[ToolKey, str] = {
    (None, "shell_command"): "command",
    (None, "exec_command"): "cmd",
    (None, "shell"): "command",
    (None, "container.exec"): "command",
    (None, "execute_bash"): "command",
    (None, "bash"): "command",
    (NATIVE, "local_shell"): "command",
    (NATIVE, "shell"): SCRIPTS,
}
"""Tools that run a command, by their keys, and the argument that holds it: a script, an argv, or several scripts."""
