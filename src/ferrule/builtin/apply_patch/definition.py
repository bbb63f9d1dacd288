"""What `apply_patch` takes and answers."""

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from ferrule.builtin.apply_patch import FORMAT, FREEFORM_DESCRIPTION, FUNCTION_DESCRIPTION
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class ApplyPatchAction(Action):
    """A patch."""

    input: str = Field(
        description="The entire contents of the apply_patch command", validation_alias=AliasChoices("input", "patch")
    )


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
                executor=ApplyPatchExecutor(),
                annotations=ToolAnnotations(openWorldHint=False),
                parallel=False,
            )
        ]
