"""What a `shell_call` takes, and the `shell_call_output` that answers it."""

from collections.abc import Sequence

from pydantic import ConfigDict

from ferrule.builtin.execution import Number
from ferrule.protocol.items import ShellCallOutput, ShellCommandOutput, ShellExit
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.specs import ShellTool, ToolSpec
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition
from ferrule.tools.registry import NATIVE


class NativeShellAction(Action):
    """Scripts, run one after the other. `timeout_ms` is for each; `max_output_length` is in characters, for each."""

    commands: tuple[str, ...]
    timeout_ms: Number | None = None
    max_output_length: int | None = None


class NativeShellObservation(Observation):
    """What each script wrote and how it ended."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    results: tuple[ShellCommandOutput, ...]
    max_output_length: int | None = None

    @property
    def success(self) -> bool:
        return all(isinstance(one.outcome, ShellExit) and one.outcome.exit_code == 0 for one in self.results)

    def to_output(self, call_id: str) -> ToolOutput:
        """The answer as its own kind of item."""
        item = ShellCallOutput(call_id=call_id, output=self.results, max_output_length=self.max_output_length)
        return ToolOutput(item, self.success, True)


class NativeShellTool(ToolDefinition[NativeShellAction, NativeShellObservation]):
    """Serves `shell_call` items."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[NativeShellTool]":
        """The one instance."""
        from ferrule.builtin.native_shell.impl import NativeShellExecutor

        executor = NativeShellExecutor(conv_state.commands)
        return [cls(executor=executor, name="shell", namespace=NATIVE, parallel=True)]

    @property
    def spec(self) -> ToolSpec:
        """See `ToolDefinition.spec`."""
        return ShellTool()
