"""`js_repl_reset`: a new kernel for `js_repl`."""

from collections.abc import Sequence

from ferrule.builtin.js_repl.repl import Repl
from ferrule.tools.action import Action, Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = "Restarts the js_repl kernel for this run and clears persisted top-level bindings."


class JsReplResetAction(Action):
    """Nothing to say."""


class JsReplResetObservation(Observation):
    """The kernel is gone; the next cell starts another."""

    @property
    def to_llm_content(self) -> str:
        return "js_repl kernel reset"


class JsReplResetExecutor(ToolExecutor[JsReplResetAction, JsReplResetObservation]):
    """The kernel is the session's."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl

    async def __call__(self, action: JsReplResetAction, ctx: ToolContext) -> JsReplResetObservation:
        """End it, whatever runs on it."""
        await self._repl.reset()
        return JsReplResetObservation()


class JsReplResetTool(ToolDefinition[JsReplResetAction, JsReplResetObservation]):
    """Ends the session's kernel. It touches nothing else."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[JsReplResetTool]":
        """Create one for the conversation."""
        annotations = ToolAnnotations(readOnlyHint=True, destructiveHint=False, openWorldHint=False)
        executor = JsReplResetExecutor(conv_state.shared.get(Repl))
        return [cls(description=DESCRIPTION, executor=executor, annotations=annotations, parallel=False)]


TOOL = JsReplResetTool
