"""What `js_repl` takes and answers."""

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from ferrule.builtin.hints import RUNS
from ferrule.builtin.js_repl import FORMAT, FREEFORM_DESCRIPTION, FUNCTION_DESCRIPTION
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.payload import NO_OUTPUT
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class JsReplAction(Action):
    """JavaScript to evaluate."""

    code: str = Field(description="JavaScript source text", validation_alias=AliasChoices("code", "input"))
    timeout_ms: float | None = Field(
        default=None, description="After this many milliseconds the kernel is restarted; 30000 by default"
    )


class JsReplObservation(Observation):
    """What the cell printed, its value or its error, and the images that it emitted, as data URLs."""

    bounded = True

    ok: bool
    output: str
    images: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str | tuple[ContentPart, ...]:
        if not self.images:
            return self.output or NO_OUTPUT
        text = (InputText(self.output),) if self.output else ()
        return (*text, *(InputImage(image_url=url) for url in self.images))

    @property
    def success(self) -> bool:
        return self.ok


class JsReplTool(ToolDefinition[JsReplAction, JsReplObservation]):
    """Evaluates cells in the session's kernel, which starts with the first one."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[JsReplTool]":
        """The one instance, in the form that the model's family was trained on."""
        from ferrule.builtin.js_repl.impl import JsReplExecutor
        from ferrule.builtin.js_repl.repl import Repl

        freeform = conv_state.profile.apply_patch == "freeform"
        return [
            cls(
                description=FREEFORM_DESCRIPTION if freeform else FUNCTION_DESCRIPTION,
                freeform=FORMAT if freeform else None,
                executor=JsReplExecutor(conv_state.commands, conv_state.shared.get(Repl)),
                annotations=RUNS,
                parallel=False,
                own_parser=True,
            )
        ]
