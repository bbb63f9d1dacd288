"""What `js_repl_reset` takes and answers."""

from collections.abc import Sequence

from ferrule.builtin.js_repl_reset import DESCRIPTION
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class JsReplResetAction(Action):
    """Nothing to say."""


class JsReplResetObservation(Observation):
    """The kernel is gone; the next cell starts another."""

    @property
    def to_llm_content(self) -> str:
        return "js_repl kernel reset"


class JsReplResetTool(ToolDefinition[JsReplResetAction, JsReplResetObservation]):
    """Ends the session's kernel. It touches nothing else."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[JsReplResetTool]":
        """The one instance."""
        from ferrule.builtin.js_repl.repl import Repl
        from ferrule.builtin.js_repl_reset.impl import JsReplResetExecutor

        annotations = ToolAnnotations(readOnlyHint=True, destructiveHint=False, openWorldHint=False)
        executor = JsReplResetExecutor(conv_state.shared.get(Repl))
        return [cls(description=DESCRIPTION, executor=executor, annotations=annotations, parallel=False)]
