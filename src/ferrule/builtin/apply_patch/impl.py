"""Plans a patch in memory, and writes it through `ctx.run`, all or nothing."""

import time

from ferrule.builtin.apply_patch.definition import ApplyPatchAction, ApplyPatchObservation
from ferrule.patch import Operation, OperationKind, Patch, PatchError, Plan, apply, parse, plan
from ferrule.patch.turn_diff import Change
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import FileChange, PatchApplyBegin, PatchApplyEnd, TurnDiff
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.effects import PatchEffect
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.turn_diff import TurnDiffTracker

_CHANGE = {OperationKind.CREATE: "add", OperationKind.DELETE: "delete", OperationKind.UPDATE: "update"}


class ApplyPatchExecutor(ToolExecutor[ApplyPatchAction, ApplyPatchObservation]):
    """Keeps the turn's net diff."""

    def __init__(self, tracker: TurnDiffTracker) -> None:
        self._tracker = tracker

    async def __call__(self, action: ApplyPatchAction, ctx: ToolContext) -> ApplyPatchObservation:
        """Apply the patch, or change nothing."""
        started = time.monotonic()
        planned = await write_patch(action.input, ctx, self._tracker, ctx.cwd)
        return ApplyPatchObservation(summary=told(planned), wall_seconds=time.monotonic() - started)


async def write_patch(patch: str | Patch, ctx: ToolContext, tracker: TurnDiffTracker, cwd: str) -> Plan:
    """Plan and write a patch whose relative paths start at `cwd`. Raises `RespondToModel`; then nothing has changed."""
    try:
        parsed = parse(patch) if isinstance(patch, str) else patch
        if not parsed.hunks:
            raise RespondToModel("patch rejected: empty patch")
        if parsed.environment is not None:
            raise RespondToModel("apply_patch environment selection is unavailable for this turn")
        planned = plan(parsed, ctx.files.layer, cwd)
    except PatchError as error:
        raise RespondToModel(f"apply_patch verification failed: {error.verification_text}") from error
    await write_plan(planned, ctx, tracker, cwd, patch if isinstance(patch, str) else None)
    return planned


async def write_plan(planned: Plan, ctx: ToolContext, tracker: TurnDiffTracker, cwd: str, text: str | None) -> None:
    """Write a plan through `ctx.run`; `text` is what an approval shows, None for the diffs. Raises `RespondToModel`."""
    changes = tuple(map(_file_change, planned.operations))

    async def attempt(access: Access) -> None:
        ctx.emit(PatchApplyBegin(call_id=ctx.call_id, changes=changes))
        try:
            apply(planned, access.files.layer)
        except PatchError as error:
            ctx.emit(PatchApplyEnd(call_id=ctx.call_id, success=False, stderr=str(error)))
            raise RespondToModel(str(error)) from error
        ctx.emit(PatchApplyEnd(call_id=ctx.call_id, success=True, stdout=planned.summary()))

    effect = PatchEffect(
        cwd=cwd,
        changes=changes,
        paths=tuple(target for operation in planned.operations for target in operation.targets),
        risks=tuple(_risk(operation) for operation in planned.operations if operation.shared),
        text="\n".join(change.unified_diff for change in changes) if text is None else text,
    )
    await ctx.run(effect, attempt)
    diff = tracker.record(ctx.turn_id, map(_turn_change, planned.operations))
    if diff:
        ctx.emit(TurnDiff(unified_diff=diff))


def told(planned: Plan) -> str:
    """The summary, and where a match was forgiving."""
    notes = [note for operation in planned.operations for note in operation.notes]
    return planned.summary() + "".join(f"{note}\n" for note in notes)


def _file_change(operation: Operation) -> FileChange:
    return FileChange(
        kind=_CHANGE[operation.kind],
        path=operation.path,
        move_path=operation.move_to,
        added=operation.added,
        deleted=operation.deleted,
        unified_diff=operation.unified_diff(),
    )


def _turn_change(operation: Operation) -> Change:
    destination = operation.destination
    return Change(
        operation.source.absolute,
        operation.before,
        operation.after,
        None if destination is None else destination.absolute,
        operation.replaced,
    )


def _risk(operation: Operation) -> str:
    """What the user should know before a file with other names is rewritten."""
    place = operation.destination or operation.source
    return f"{place.path} has {place.entry.links} hard links, and all of them would change"
