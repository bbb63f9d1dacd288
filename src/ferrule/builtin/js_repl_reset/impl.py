"""Ends the kernel."""

from ferrule.builtin.js_repl.repl import Repl
from ferrule.builtin.js_repl_reset.definition import JsReplResetAction, JsReplResetObservation
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor


class JsReplResetExecutor(ToolExecutor[JsReplResetAction, JsReplResetObservation]):
    """The kernel is the session's."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl

    async def __call__(self, action: JsReplResetAction, ctx: ToolContext) -> JsReplResetObservation:
        """End it, whatever runs on it."""
        await self._repl.reset()
        return JsReplResetObservation()
