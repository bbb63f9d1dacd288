"""Plans a patch in memory, and writes it through `ctx.run`."""

import time

from ferrule.builtin.apply_patch.definition import ApplyPatchAction, ApplyPatchObservation
from ferrule.patch import OperationKind, PatchError, Plan, apply, parse, plan
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import FileChange, PatchApplyBegin, PatchApplyEnd
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.effects import PatchEffect
from ferrule.tools.executor import ToolExecutor

_CHANGE = {OperationKind.CREATE: "add", OperationKind.DELETE: "delete", OperationKind.UPDATE: "update"}


class ApplyPatchExecutor(ToolExecutor[ApplyPatchAction, ApplyPatchObservation]):
    """Has no state."""

    async def __call__(self, action: ApplyPatchAction, ctx: ToolContext) -> ApplyPatchObservation:
        """Apply the patch, or change nothing."""
        started = time.monotonic()
        try:
            planned = plan(parse(action.input), ctx.files.layer, ctx.cwd)
        except PatchError as error:
            raise RespondToModel(f"apply_patch verification failed: {error}") from error
        changes = tuple(_change(planned))

        async def attempt(access: Access) -> None:
            ctx.emit(PatchApplyBegin(call_id=ctx.call_id, changes=changes))
            try:
                apply(planned, access.files.layer)
            except PatchError as error:
                ctx.emit(PatchApplyEnd(call_id=ctx.call_id, success=False, stderr=str(error)))
                raise RespondToModel(str(error)) from error
            ctx.emit(PatchApplyEnd(call_id=ctx.call_id, success=True, stdout=planned.summary()))

        paths = tuple(target for operation in planned.operations for target in operation.targets)
        await ctx.run(PatchEffect(cwd=ctx.cwd, changes=changes, paths=paths, text=action.input), attempt)
        return ApplyPatchObservation(summary=planned.summary(), wall_seconds=time.monotonic() - started)


def _change(planned: Plan) -> list[FileChange]:
    return [
        FileChange(
            kind=_CHANGE[operation.kind],
            path=operation.path,
            move_path=operation.move_to,
            added=operation.added,
            deleted=operation.deleted,
            unified_diff=operation.unified_diff(),
        )
        for operation in planned.operations
    ]
