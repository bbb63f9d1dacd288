"""What `apply_patch` takes and answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from ferrule.builtin.apply_patch import FORMAT, FREEFORM_DESCRIPTION, FUNCTION_DESCRIPTION
from ferrule.builtin.hints import EDITS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition

if TYPE_CHECKING:
    from ferrule.builtin.apply_patch.watcher import PatchWatcher


class ApplyPatchAction(Action):
    """A patch. Also taken: `patch`, and `command` as `["apply_patch", TEXT]`."""

    input: str = Field(description="The entire contents of the apply_patch command")

    @model_validator(mode="before")
    @classmethod
    def _other_spellings(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "input" in given:
            return given
        command = given.get("command")
        text = command[-1] if isinstance(command, list) and command else given.get("patch")
        return given if text is None else {**given, "input": text}


class ApplyPatchObservation(Observation):
    """What was written, in the format that models were trained on."""

    summary: str
    wall_seconds: float

    @property
    def to_llm_content(self) -> str:
        return f"Exit code: 0\nWall time: {round(self.wall_seconds, 1):g} seconds\nOutput:\n{self.summary}"


class ApplyPatchTool(ToolDefinition[ApplyPatchAction, ApplyPatchObservation]):
    """Writes files through `ctx.run`, all or nothing."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ApplyPatchTool]":
        """The one instance, in the form that the model's family was trained on."""
        from ferrule.builtin.apply_patch.impl import ApplyPatchExecutor

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

    def input_watcher(self, call_id: str) -> "PatchWatcher":
        """Tells which files a patch names while it arrives."""
        from ferrule.builtin.apply_patch.watcher import PatchWatcher

        return PatchWatcher(call_id)
