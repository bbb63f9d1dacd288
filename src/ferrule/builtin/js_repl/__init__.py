"""`js_repl`: JavaScript in a Node kernel that lives as long as the session."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import FreeformTool, FreeformToolFormat, ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.js_repl.definition import JsReplTool

PRAGMA = "// codex-js-repl:"
"""How the line of options begins, as models were trained on it."""

_WHAT = """\
Runs JavaScript in a persistent Node kernel with top-level await. Top-level bindings of every kind are kept between \
calls and may be declared again. What the console prints comes back, then the value of a last expression. \
`await import(...)`, `import` declarations and `require` work. `await ferrule.tool(name, args)` calls another tool: \
`args` is an object, or the text of a freeform tool; it gives the tool's text, or throws. \
`ferrule.emitImage(bytesOrDataUrl)` adds an image to the result. `ferrule.tmpDir` is for temporary files."""

FREEFORM_DESCRIPTION = f"""\
{_WHAT} This is a freeform tool: send raw JavaScript source text, optionally with a first line of options like \
`{PRAGMA} timeout_ms=15000`; do not send JSON, quotes or markdown fences."""
FUNCTION_DESCRIPTION = _WHAT

GRAMMAR = r"""
start: (PRAGMA LINE_END)? SOURCE

PRAGMA: /[ \t]*\/\/ codex-js-repl:[^\r\n]*/
LINE_END: /\r?\n/

// Raw source: it does not begin as a JSON object, a quoted string or a Markdown fence would.
SOURCE: /\s*([^\s{"`]|`[^`]|``[^`])(.|\n)*/
"""
FORMAT = FreeformToolFormat(type="grammar", syntax="lark", definition=GRAMMAR)


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees: the freeform tool, or a function for models that were not trained on those."""
    if state.profile.apply_patch == "freeform":
        return FreeformTool(name="js_repl", description=FREEFORM_DESCRIPTION, format=FORMAT)
    return function_spec("js_repl", FUNCTION_DESCRIPTION)


def create(state: ConversationState) -> "Sequence[JsReplTool]":
    """The tool."""
    from ferrule.builtin.js_repl.definition import JsReplTool

    return JsReplTool.create(state)
