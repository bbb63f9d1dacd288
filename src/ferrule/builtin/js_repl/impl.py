"""Evaluates cells in the session's kernel, and calls other tools for them."""

import itertools

import msgspec

from ferrule.builtin.execution import limit_ms
from ferrule.builtin.js_repl.definition import JsReplAction, JsReplObservation
from ferrule.builtin.js_repl.kernel import CellResult, Kernel
from ferrule.builtin.js_repl.node import needed_node
from ferrule.builtin.js_repl.repl import Repl
from ferrule.builtin.js_repl.source import read_cell
from ferrule.builtin.output_text import with_notes
from ferrule.process.launcher import LaunchError
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import JsonValue, decode
from ferrule.protocol.payload import CustomPayload, FunctionPayload, ToolPayload
from ferrule.protocol.truncation import truncate_text
from ferrule.tools.commands import Commands
from ferrule.tools.context import Access, ToolContext, ToolInvocation
from ferrule.tools.effects import CommandEffect
from ferrule.tools.executor import ToolExecutor

ITSELF = frozenset({"js_repl", "js_repl_reset"})


class JsReplExecutor(ToolExecutor[JsReplAction, JsReplObservation]):
    """Every cell goes through `ctx.run`, as the command that would run it alone; the kernel is confined likewise."""

    def __init__(self, commands: Commands, repl: Repl) -> None:
        self._commands = commands
        self._repl = repl

    async def __call__(self, action: JsReplAction, ctx: ToolContext) -> JsReplObservation:
        """Evaluate the cell."""
        cell = read_cell(action.code, limit_ms(action.timeout_ms))
        env = await self._commands.environment(login=True)
        node = needed_node(env, self._commands.places)
        nested = NestedCalls(ctx)

        async def attempt(access: Access) -> CellResult:
            async def start() -> Kernel:
                return await Kernel.start(access.launcher, node, env, ctx.cwd, sandboxed=access.sandboxed)

            return await self._repl.run(cell, access.sandboxed, start, nested.call)

        try:
            result = await ctx.run(CommandEffect(argv=(node, "--eval", cell.code), cwd=ctx.cwd), attempt)
        except LaunchError as error:
            raise RespondToModel(f"js_repl cannot start its kernel: {error}") from error
        return _observation(result, ctx)


class NestedCalls:
    """The calls of tools from inside one cell."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._numbers = itertools.count(1)

    async def call(self, name: str, arguments: str, raw: bool) -> JsonValue:
        """The answer of a tool: its text, or its content parts. Raises `RespondToModel`."""
        if name in ITSELF:
            raise RespondToModel("js_repl cannot invoke itself")
        call_id = f"{self._ctx.call_id}_{next(self._numbers)}"
        output = await self._ctx.call(ToolInvocation(call_id, name, _payload(arguments, raw)))
        return output.body if isinstance(output.body, str) else msgspec.to_builtins(output.body)


def _payload(arguments: str, raw: bool) -> ToolPayload:
    """Text from a cell is what a freeform tool takes, unless it is an object's JSON."""
    if raw:
        try:
            raw = not isinstance(decode(arguments), dict)
        except RespondToModel:
            return CustomPayload(arguments)
    return CustomPayload(arguments) if raw else FunctionPayload(arguments)


def _observation(result: CellResult, ctx: ToolContext) -> JsReplObservation:
    text = with_notes(result.inherited, filter(None, (result.output, result.error)))
    return JsReplObservation(ok=result.ok, output=truncate_text(text, ctx.output_budget), images=result.images)
