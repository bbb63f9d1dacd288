"""`js_repl_reset`: a new kernel for `js_repl`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.js_repl_reset.definition import JsReplResetTool

DESCRIPTION = "Restarts the js_repl kernel for this run and clears persisted top-level bindings."


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("js_repl_reset", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[JsReplResetTool]":
    """The tool."""
    from ferrule.builtin.js_repl_reset.definition import JsReplResetTool

    return JsReplResetTool.create(state)
