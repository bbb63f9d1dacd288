"""Runs one native operation on the path of every patch."""

from ferrule.builtin.apply_patch.impl import told, write_patch
from ferrule.builtin.native_apply_patch.definition import NativeApplyPatchAction, NativeApplyPatchObservation
from ferrule.patch import PatchError
from ferrule.patch.hosted import parse_operation
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.turn_diff import TurnDiffTracker


class NativeApplyPatchExecutor(ToolExecutor[NativeApplyPatchAction, NativeApplyPatchObservation]):
    """Shares the turn's net diff with the other form."""

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
