"""What an `apply_patch_call` takes and how it is answered."""

from collections.abc import Sequence
from typing import Literal

from ferrule.builtin.hints import EDITS
from ferrule.protocol.items import ApplyPatchCallOutput
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.specs import ApplyPatchTool, ToolSpec
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition
from ferrule.tools.registry import NATIVE


class NativeApplyPatchAction(Action):
    """One operation on one file."""

    type: Literal["create_file", "update_file", "delete_file"]
    path: str
    diff: str = ""


class NativeApplyPatchObservation(Observation):
    """What was written."""

    summary: str

    def to_output(self, call_id: str) -> ToolOutput:
        """An item of its own."""
        return ToolOutput(ApplyPatchCallOutput(call_id=call_id, status="completed", output=self.summary), True)


class NativeApplyPatchTool(ToolDefinition[NativeApplyPatchAction, NativeApplyPatchObservation]):
    """Writes one file through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[NativeApplyPatchTool]":
        """The one instance."""
        from ferrule.builtin.native_apply_patch.impl import NativeApplyPatchExecutor

        executor = NativeApplyPatchExecutor(conv_state.turn_diff)
        return [cls(name="apply_patch", namespace=NATIVE, executor=executor, annotations=EDITS, parallel=False)]

    @property
    def spec(self) -> ToolSpec:
        """The native tool has no parameters to show."""
        return ApplyPatchTool()
