"""`js_repl`: JavaScript in a Node kernel that lives as long as the session."""

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from ferrule.builtin.cells import CellExecutor, CellObservation
from ferrule.builtin.execution import limit_ms
from ferrule.builtin.hints import RUNS
from ferrule.builtin.js_repl.node import needed_node
from ferrule.builtin.js_repl.repl import Repl, start_node
from ferrule.builtin.js_repl.source import PRAGMA, read_cell
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.process.kernel import CellResult, Kernel
from ferrule.process.launcher import Launcher
from ferrule.protocol.specs import FreeformToolFormat
from ferrule.protocol.truncation import truncate_text
from ferrule.tools.action import Action
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition

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


class JsReplAction(Action):
    """JavaScript to evaluate."""

    code: str = Field(description="JavaScript source text", validation_alias=AliasChoices("code", "input"))
    timeout_ms: float | None = Field(
        default=None, description="After this many milliseconds the kernel is restarted; 30000 by default"
    )


class JsReplObservation(CellObservation):
    """The cell's output, its value or its error, and its images as data URLs."""


class JsReplExecutor(CellExecutor[JsReplAction, JsReplObservation]):
    """Evaluates cells in Node."""

    def __init__(self, commands: Commands, repl: Repl) -> None:
        self._commands = commands
        self._repl = repl

    async def __call__(self, action: JsReplAction, ctx: ToolContext) -> JsReplObservation:
        """Evaluate the cell."""
        cell, contained = read_cell(action.code, limit_ms(action.timeout_ms)), self._commands.contained
        env = await self._commands.environment(login=True)
        node = "node" if contained else needed_node(env, self._commands.places)

        async def start(launcher: Launcher) -> Kernel:
            return await start_node(launcher, node, env, ctx.cwd, contained=contained)

        argv = (node, "--eval", cell.code)
        return _observation(await self._evaluate(self._repl, ctx, argv, cell.code, cell.timeout_ms, start), ctx)


def _observation(result: CellResult, ctx: ToolContext) -> JsReplObservation:
    text = with_notes(output_text(result.inherited).text, filter(None, (result.output, result.error)))
    return JsReplObservation(ok=result.ok, output=truncate_text(text, ctx.output_budget), images=result.images)


class JsReplTool(ToolDefinition[JsReplAction, JsReplObservation]):
    """Evaluates cells in the session's kernel, which starts with the first one."""

    starts_processes = True

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[JsReplTool]":
        """Create one for the conversation, in the form that the model's family was trained on."""
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


TOOL = JsReplTool
