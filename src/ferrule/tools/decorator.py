"""`@tool`: a plain function becomes a tool. Its signature gives the schema, its docstring the description."""

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, cast, overload

import msgspec

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.payload import FunctionPayload
from ferrule.schemas.signatures import keyword_arguments, plain_arguments, read_signature, signature_model
from ferrule.tools.action import Action, Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.definition import Execute, Execution, ToolDefinition, in_the_loop, on_a_thread


class FunctionTool(ToolDefinition[Action, Observation]):
    """A tool made from one function. It can still be called like that function.

    Where JSON itself has all its types, its arguments are read by msgspec; their pydantic form, the action, is made
    when somebody asks for it.
    """

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
        self.function = function
        self._signature = read_signature(function, ToolContext)
        self._plain = plain_arguments(self._signature)
        self._read_plain = None if self._plain is None else msgspec.json.Decoder(self._plain.struct).decode
        super().__init__(
            name=name or function.__name__,
            description=self._signature.docstring.description if description is None else description,
            annotations=annotations,
            parallel=parallel,
            strict=strict,
            blocking=blocking,
            examples=examples,
        )

    @cached_property
    def action_type(self) -> type[Action]:
        """A model of the function's arguments."""
        return cast("type[Action]", signature_model(self._signature, Action))

    def parameters(self) -> JsonSchema:
        """Return the schema of the arguments as the model sees it."""
        return super().parameters() if self._plain is None else self._plain.schema

    def _read(self, invocation: ToolInvocation) -> Action | msgspec.Struct:
        """Return the arguments as a Struct if it takes them as they are, else as an action, which may be repaired."""
        payload = invocation.payload
        if self._read_plain is None or invocation.decoded is not _UNSET or not isinstance(payload, FunctionPayload):
            return self.read_action(invocation)
        try:
            return self._read_plain(payload.arguments)
        except (ValueError, RecursionError):
            return self.read_action(invocation)

    def _execution(self, blocking: bool | None) -> Execution:
        """Return how the function runs: awaited, in the loop, or on a thread; with the context if it wants one."""
        function, context = self.function, next(iter(self._signature.hidden), None)
        struct, fields = self._plain and self._plain.struct, msgspec.structs.asdict

        def call(arguments: Any, ctx: ToolContext) -> Any:
            return function(**(fields(arguments) if type(arguments) is struct else self._keywords(arguments)))

        def call_in_context(arguments: Any, ctx: ToolContext) -> Any:
            keywords = fields(arguments) if type(arguments) is struct else self._keywords(arguments)
            return function(**keywords, **{str(context): ctx})

        chosen: Execute = call if context is None else call_in_context
        if not inspect.iscoroutinefunction(function):
            chosen = in_the_loop(chosen) if blocking is False else on_a_thread(chosen)
        return Execution(chosen, context is not None)

    @cached_property
    def _keywords(self) -> Callable[[Action], dict[str, Any]]:
        renamed = any(field.alias for field in self.action_type.model_fields.values())
        return keyword_arguments if renamed else vars


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


_UNSET = msgspec.UNSET
