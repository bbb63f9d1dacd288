"""`js_repl`: JavaScript in a Node kernel that lives as long as the session."""

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from ferrule.builtin.execution import limit_ms
from ferrule.builtin.hints import RUNS
from ferrule.builtin.js_repl.node import needed_node
from ferrule.builtin.js_repl.repl import Repl, start_node
from ferrule.builtin.js_repl.source import PRAGMA, read_cell
from ferrule.builtin.kept_kernel import NestedCalls, remarked
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.process.kernel import CellResult, Kernel
from ferrule.process.launcher import LaunchError
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.payload import NO_OUTPUT
from ferrule.protocol.specs import FreeformToolFormat
from ferrule.protocol.truncation import truncate_text
from ferrule.tools.action import Action, Observation
from ferrule.tools.commands import Commands
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.effects import CommandEffect
from ferrule.tools.executor import ToolExecutor

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


class JsReplObservation(Observation):
    """The cell's output, its value or its error, and its images as data URLs."""

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


class JsReplExecutor(ToolExecutor[JsReplAction, JsReplObservation]):
    """Every cell goes through `ctx.run`, as the command that would run it alone; the kernel is confined likewise."""

    asks_first = True

    def __init__(self, commands: Commands, repl: Repl) -> None:
        self._commands = commands
        self._repl = repl

    async def __call__(self, action: JsReplAction, ctx: ToolContext) -> JsReplObservation:
        """Evaluate the cell."""
        cell = read_cell(action.code, limit_ms(action.timeout_ms))
        env = await self._commands.environment(login=True)
        node = "node" if self._commands.contained else needed_node(env, self._commands.places)
        nested = NestedCalls(Repl.tool, ctx)

        async def attempt(access: Access) -> CellResult:
            async def start() -> Kernel:
                return await start_node(access.launcher, node, env, ctx.cwd, contained=self._commands.contained)

            result = await self._repl.run(cell.code, cell.timeout_ms, access.sandboxed, start, nested.call)
            return remarked(result, access.remarks())

        try:
            result = await ctx.run(CommandEffect(argv=(node, "--eval", cell.code), cwd=ctx.cwd), attempt)
        except LaunchError as error:
            raise RespondToModel(f"js_repl cannot start its kernel: {error}") from error
        return _observation(result, ctx)


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
