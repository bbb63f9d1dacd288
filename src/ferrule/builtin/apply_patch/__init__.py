"""`apply_patch`: change files by a V4A patch."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pydantic import Field, model_validator

from ferrule.builtin.apply_patch.watcher import PatchWatcher
from ferrule.builtin.command_forms import patch_text
from ferrule.builtin.hints import EDITS
from ferrule.patch import Operation, OperationKind, Patch, PatchError, Plan, UpdateFile, apply, parse, plan
from ferrule.patch.encoding import Encoding
from ferrule.patch.grammar import FORMAT_DESCRIPTION, GRAMMAR
from ferrule.patch.text import decoded
from ferrule.patch.turn_diff import Change
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import FileChange, PatchApplyBegin, PatchApplyEnd, TurnDiff, WarningEvent
from ferrule.protocol.json_text import encodable
from ferrule.protocol.payload import CustomPayload, ToolPayload
from ferrule.protocol.specs import FreeformToolFormat
from ferrule.tools.action import Action, Observation
from ferrule.tools.buffers import OpenedFiles
from ferrule.tools.context import Access, ToolContext, ToolInvocation
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.effects import PatchEffect
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.turn_diff import TurnDiffTracker

FREEFORM_DESCRIPTION = (
    "Use the `apply_patch` tool to edit files. This is a FREEFORM tool, so do not wrap the patch in JSON."
)
FUNCTION_DESCRIPTION = f"Use the `apply_patch` tool to edit files.\n\n{FORMAT_DESCRIPTION}"
CHANGED = "a file changed in the user's editor since the patch was checked. Read it and patch again."
FORMAT = FreeformToolFormat(type="grammar", syntax="lark", definition=GRAMMAR)


class ApplyPatchAction(Action):
    """A patch. Also taken: `patch`, and `command` or `cmd` as `["apply_patch", TEXT]` or a script."""

    input: str = Field(description="The entire contents of the apply_patch command")

    @model_validator(mode="before")
    @classmethod
    def _other_spellings(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        text = patch_text(given)
        return given if text is None else {**given, "input": text}


class ApplyPatchObservation(Observation):
    """The changed files, in the format that models were trained on."""

    summary: str
    wall_seconds: float

    @property
    def to_llm_content(self) -> str:
        return f"Exit code: 0\nWall time: {round(self.wall_seconds, 1):g} seconds\nOutput:\n{self.summary}"


_CHANGE = {OperationKind.CREATE: "add", OperationKind.DELETE: "delete", OperationKind.UPDATE: "update"}


class ApplyPatchExecutor(ToolExecutor[ApplyPatchAction, ApplyPatchObservation]):
    """Keeps the turn's net diff."""

    asks_first = True

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
        ctx = await ctx.seeing(*(os.path.join(cwd, path) for path in _named(parsed)))
        planned = plan(parsed, ctx.files.layer, cwd)
    except PatchError as error:
        raise RespondToModel(f"apply_patch verification failed: {error.verification_text}") from error
    await write_plan(planned, ctx, tracker, cwd, patch if isinstance(patch, str) else None)
    return planned


async def write_plan(planned: Plan, ctx: ToolContext, tracker: TurnDiffTracker, cwd: str, text: str | None) -> None:
    """Write a plan through `ctx.run`; `text` is what an approval shows, None for the diffs. Raises `RespondToModel`."""
    changes = tuple(map(_file_change, planned.operations))

    async def attempt(access: Access) -> None:
        await carry_out(planned, changes, ctx, access, tracker, cwd)

    effect = PatchEffect(
        cwd=cwd,
        changes=changes,
        paths=tuple(target for operation in planned.operations for target in operation.targets),
        risks=tuple(_risk(operation) for operation in planned.operations if operation.shared),
        text="\n".join(change.unified_diff for change in changes) if text is None else text,
    )
    await ctx.run(effect, attempt)
    record(planned, ctx, tracker)


async def carry_out(
    planned: Plan,
    changes: tuple[FileChange, ...],
    ctx: ToolContext,
    access: Access,
    tracker: TurnDiffTracker,
    cwd: str,
) -> None:
    """Write a plan with the access that was granted; `changes` are what it does, for people. The user's editor learns
    of it. Raises `RespondToModel`."""
    opened, layer = ctx.files.opened, access.files.layer
    if not await ctx.files.is_still_seen(layer):
        raise RespondToModel(CHANGED)
    ctx.emit(PatchApplyBegin(call_id=ctx.call_id, changes=changes, cwd=cwd))
    try:
        with tracker.writing(_touched(planned), opened):
            apply(planned, OpenedFiles(layer, opened) if opened else layer, journal=access.files.journal)
            for text in await ctx.files.save(_written(planned)):
                ctx.emit(WarningEvent(message=text))
    except PatchError as error:
        ctx.emit(PatchApplyEnd(call_id=ctx.call_id, success=False, stderr=str(error)))
        raise RespondToModel(str(error)) from error
    ctx.emit(PatchApplyEnd(call_id=ctx.call_id, success=True, stdout=planned.summary()))


def record(planned: Plan, ctx: ToolContext, tracker: TurnDiffTracker) -> None:
    """Add a plan that was written to what the turn has changed."""
    diff = tracker.record(ctx.turn_id, map(_turn_change, planned.operations))
    if diff:
        ctx.emit(TurnDiff(unified_diff=diff))


def _named(patch: Patch) -> Iterator[str]:
    for hunk in patch.hunks:
        yield hunk.path
        if isinstance(hunk, UpdateFile) and hunk.move_to is not None:
            yield hunk.move_to


def _written(planned: Plan) -> Iterator[tuple[str, bytes]]:
    """Yield the absolute path and the content of each file that the plan leaves."""
    last = {operation.target: operation.after for operation in planned.operations}
    return ((path, data) for path, data in last.items() if data is not None)


def told(planned: Plan) -> str:
    """Return the summary, and where a match was forgiving."""
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
        old_text=_text(operation.before, operation.encodings[0]),
        new_text=_text(operation.after, operation.encodings[1]),
    )


def _text(data: bytes | None, encoding: Encoding | None) -> str | None:
    if data is None:
        return None
    return encodable(decoded(data)[0] if encoding is None else encoding.decode(data))


def _turn_change(operation: Operation) -> Change:
    destination = operation.destination
    return Change(
        operation.source.absolute,
        operation.before,
        operation.after,
        None if destination is None else destination.absolute,
        operation.replaced,
    )


def _touched(planned: Plan) -> list[str]:
    """Return each path that the plan may change: a link, and what it leads to."""
    places = (place for operation in planned.operations for place in (operation.source, operation.destination))
    entries = [place.entry for place in places if place is not None]
    return list(dict.fromkeys(path for entry in entries for path in (entry.name, entry.real)))


def _risk(operation: Operation) -> str:
    """Warn the user before a file that has other names is rewritten."""
    place = operation.destination or operation.source
    return f"{place.path} has {place.entry.links} hard links, and all of them would change"


class ApplyPatchTool(ToolDefinition[ApplyPatchAction, ApplyPatchObservation]):
    """Writes files through `ctx.run`, all or nothing."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ApplyPatchTool]":
        """Create one for the conversation, in the form that the model's family was trained on."""
        freeform = conv_state.profile.apply_patch == "freeform"
        return [
            cls(
                description=FREEFORM_DESCRIPTION if freeform else FUNCTION_DESCRIPTION,
                freeform=FORMAT if freeform else None,
                own_parser=True,
                executor=ApplyPatchExecutor(conv_state.turn_diff),
                annotations=EDITS,
                parallel=False,
            )
        ]

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Text as well, also of a model that was shown the function."""
        return isinstance(payload, CustomPayload) or super().matches_kind(payload)

    def read_action(self, invocation: ToolInvocation) -> ApplyPatchAction:
        """Return the patch, which a model may have wrapped in JSON where text is wanted."""
        payload = invocation.payload
        if isinstance(payload, CustomPayload) and invocation.decoded is msgspec.UNSET:
            return ApplyPatchAction(input=patch_text(payload.input) or "")
        return super().read_action(invocation)

    def input_watcher(self, call_id: str) -> PatchWatcher:
        """Tells which files a patch names while it arrives."""
        return PatchWatcher(call_id)


TOOL = ApplyPatchTool
