"""The native patch tool: `apply_patch_call` items, answered by `apply_patch_call_output`."""

from collections.abc import Sequence
from typing import Literal

from ferrule.builtin.apply_patch import told, write_patch
from ferrule.builtin.hints import EDITS
from ferrule.patch import PatchError
from ferrule.patch.hosted import parse_operation
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import ApplyPatchCallOutput
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.specs import ApplyPatchTool, ToolSpec
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.registry import NATIVE
from ferrule.tools.turn_diff import TurnDiffTracker


class NativeApplyPatchAction(Action):
    """One operation on one file."""

    type: Literal["create_file", "update_file", "delete_file"]
    path: str
    diff: str = ""


class NativeApplyPatchObservation(Observation):
    """The files that were written."""

    summary: str

    def to_output(self, call_id: str) -> ToolOutput:
        """Answer with an item of its own type."""
        return ToolOutput(ApplyPatchCallOutput(call_id=call_id, status="completed", output=self.summary), True)


class NativeApplyPatchExecutor(ToolExecutor[NativeApplyPatchAction, NativeApplyPatchObservation]):
    """Shares the turn's net diff with the other form."""

    asks_first = True

    def __init__(self, tracker: TurnDiffTracker) -> None:
        self._tracker = tracker

    async def __call__(self, action: NativeApplyPatchAction, ctx: ToolContext) -> NativeApplyPatchObservation:
        """Apply the operation, or change nothing."""
        try:
            patch = parse_operation(action.type, action.path, action.diff)
        except PatchError as error:
            raise RespondToModel(f"Error: {error}") from error
        planned = await write_patch(patch, ctx, self._tracker, ctx.cwd)
        return NativeApplyPatchObservation(summary=told(planned))


class NativeApplyPatchTool(ToolDefinition[NativeApplyPatchAction, NativeApplyPatchObservation]):
    """Writes one file through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[NativeApplyPatchTool]":
        """Create one for the conversation."""
        executor = NativeApplyPatchExecutor(conv_state.turn_diff)
        return [cls(name="apply_patch", namespace=NATIVE, executor=executor, annotations=EDITS, parallel=False)]

    @property
    def spec(self) -> ToolSpec:
        """The native tool has no parameters to show."""
        return ApplyPatchTool()


TOOL = NativeApplyPatchTool
