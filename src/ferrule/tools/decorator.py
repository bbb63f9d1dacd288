"""`@tool`: a plain function becomes a tool. Its signature gives the schema, its docstring the description."""

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, cast, overload

from ferrule.schemas.writer import keyword_arguments, signature_model
from ferrule.tools.action import Action, Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import Execute, Execution, ToolDefinition, in_the_loop, on_a_thread


class FunctionTool(ToolDefinition[Action, Observation]):
    """A tool made from one function. It can still be called like that function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        parallel: bool | None = None,
        blocking: bool = True,
        strict: bool = False,
        examples: Sequence[str] = (),
    ) -> None:
        context = _context_parameters(function)
        arguments = cast("type[Action]", signature_model(function, base=Action, skip=context))
        self.function = function
        self._run = _execution(function, _reader(arguments), next(iter(context), None), blocking)
        super().__init__(
            name=name or function.__name__,
            description=description,
            action_type=arguments,
            annotations=annotations,
            parallel=parallel,
            strict=strict,
            examples=examples,
        )

    def _execution(self, blocking: bool | None) -> Execution:
        return self._run


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: ToolAnnotations | None = None,
    read_only: bool = False,
    parallel: bool | None = None,
    blocking: bool = True,
    strict: bool = False,
    examples: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: ToolAnnotations | None = None,
    read_only: bool = False,
    parallel: bool | None = None,
    blocking: bool = True,
    strict: bool = False,
    examples: Sequence[str] = (),
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Turn a function into a tool.

    `read_only` declares that it changes nothing: it then runs without approval and beside other calls. A plain `def`
    runs on a separate thread; `blocking=False` runs it in the event loop, for functions that return at once. A
    parameter annotated as `ToolContext` is hidden from the model and receives the call's context. `examples` appear
    under `# Examples` of the model's instructions.
    """
    if annotations is None and read_only:
        annotations = ToolAnnotations(readOnlyHint=True, destructiveHint=False)

    def make(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            function,
            name=name,
            description=description,
            annotations=annotations,
            parallel=parallel,
            blocking=blocking,
            strict=strict,
            examples=examples,
        )

    return make if function is None else make(function)


def _context_parameters(function: Callable[..., Any]) -> frozenset[str]:
    hints = typing.get_type_hints(function)
    return frozenset(name for name in inspect.signature(function).parameters if hints.get(name) is ToolContext)


Keywords = Callable[[Action], dict[str, Any]]


def _reader(arguments: type[Action]) -> Keywords:
    """Return how to get the function's keywords from a validated action."""
    if any(field.alias for field in arguments.model_fields.values()):
        return keyword_arguments
    return vars


def _execution(function: Callable[..., Any], keywords: Keywords, context: str | None, blocking: bool) -> Execution:
    """Return how the function runs: awaited, in the loop, or on a thread; with the context if it wants one."""

    def call(action: Action, ctx: ToolContext) -> Any:
        return function(**keywords(action))

    def call_in_context(action: Action, ctx: ToolContext) -> Any:
        return function(**keywords(action), **{str(context): ctx})

    chosen: Execute = call if context is None else call_in_context
    if not inspect.iscoroutinefunction(function):
        chosen = on_a_thread(chosen) if blocking else in_the_loop(chosen)
    return Execution(chosen, context is not None)
