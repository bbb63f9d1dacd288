"""Which built-in tools there are. A folder's package gives the spec without pydantic; `create` imports the rest."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

import msgspec

from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState


class _Package(Protocol):
    def spec(self, state: ConversationState) -> ToolSpec: ...
    def create(self, state: ConversationState) -> Sequence[Any]: ...


class Builtin(msgspec.Struct, frozen=True):
    """One built-in tool. `parallel`: its calls may run beside others. `hidden`: answered, but not shown to the model
    (an older name of another tool)."""

    name: str
    parallel: bool = False
    namespace: str | None = None
    hidden: bool = False

    @property
    def _package(self) -> _Package:
        return cast("_Package", import_module(f"ferrule.builtin.{self.name}"))

    def spec(self, state: ConversationState) -> ToolSpec:
        """What the model sees. Cheap: nothing heavy is imported."""
        return self._package.spec(state)

    def create(self, state: ConversationState) -> Sequence[Any]:
        """The tool, ready to run."""
        return self._package.create(state)


BUILTINS = {
    tool.name: tool
    for tool in (
        Builtin("shell_command", parallel=True),
        Builtin("apply_patch"),
        Builtin("update_plan"),
    )
}
