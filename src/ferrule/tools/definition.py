"""Tools the OpenHands way: a `ToolDefinition` joins a pydantic `Action`, a pydantic `Observation` and an executor.

A definition is a `ToolHandler` and has a `ToolSpec`; nothing else connects the two designs.
"""

import inspect
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec
import pydantic_core

from ferrule.protocol.content import ContentPart
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.protocol.payload import (
    NO_OUTPUT,
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    NativePayload,
    ToolOutput,
    ToolPayload,
)
from ferrule.protocol.specs import FreeformTool, FreeformToolFormat, ResponsesApiTool, ToolSpec
from ferrule.schemas.strict import StrictError, to_strict
from ferrule.schemas.writer import schema_of_model
from ferrule.sync import wait_for_coroutine
from ferrule.tools.action import Action, Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.arguments import ModelValidator, decode_arguments, read_arguments, validate_value
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.conversation import ConversationState
from ferrule.tools.effects import ToolEffect
from ferrule.tools.events import ActionEvent, ObservationEvent
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.grammar import checkable_grammar
from ferrule.tools.handler import ToolHandler
from ferrule.tools.local import LocalHost
from ferrule.tools.tasks import run_blocking

log = logging.getLogger("ferrule.tools")


A = TypeVar("A", bound=Action)
O = TypeVar("O", bound=Observation)  # noqa: E741 - as in Observation

Execute = Callable[[Any, Any], Any]


class Execution(NamedTuple):
    """How a tool is executed: `call(action, ctx)` is awaited; `takes_context` means that it acts through the
    context."""

    call: Execute
    takes_context: bool


class ToolBase(ABC, Generic[A, O]):
    """The base of tool classes, with `create`, which makes configured instances."""

    @classmethod
    @abstractmethod
    def create(cls, conv_state: ConversationState, **params: Any) -> Sequence["ToolDefinition[Any, Any]"]:
        """Create configured instances of the tool for one conversation."""


class ToolDefinition(ToolBase[A, O], ToolHandler):
    """One tool. Create it directly, or subclass it with a `create` that returns instances.

    Missing arguments are inferred: the types from the executor's (or the class's) type arguments, the name from the
    action's, the description from its docstring. `freeform` makes it a tool with raw text input; its action then has
    one text field for the input, which is checked against the grammar unless the tool has its `own_parser`. `parallel`
    allows calls beside other calls; read-only tools allow it by default. `blocking` decides whether a plain `def`
    executor runs on a thread (the default) or in the loop. `examples` show the model how to use the tool: they appear
    under `# Examples` of its instructions, not in the description.
    """

    starts_processes: ClassVar[bool] = False
    """Whether its calls start processes: the sandbox is then prepared with the session."""
    command_field: ClassVar[str | None] = None
    """The argument with the command that a call runs: a script, an argv, or several scripts."""
    home: "Callable[[], ToolContext | None] | None" = None
    """Gives the context of who handed the tool out, as long as that one is open."""

    def __init__(
        self,
        *,
        executor: ToolExecutor[A, O] | None = None,
        name: str | None = None,
        description: str | None = None,
        action_type: type[A] | None = None,
        observation_type: type[O] | None = None,
        annotations: ToolAnnotations | None = None,
        freeform: FreeformToolFormat | None = None,
        own_parser: bool = False,
        namespace: str | None = None,
        strict: bool = False,
        parallel: bool | None = None,
        blocking: bool | None = None,
        examples: Sequence[str] = (),
    ) -> None:
        declared = _declared_types(type(self), executor)
        action = action_type or declared[0]
        if action is None:
            raise TypeError(f"{type(self).__name__} needs an action_type, or an executor that is ToolExecutor[...]")
        self._action_type: type[A] = action
        self.observation_type: type[O] | None = observation_type or declared[1]
        self.name = name or _snake_case(action.__name__.removesuffix("Action") or action.__name__)
        self.description = description if description is not None else inspect.cleandoc(action.__doc__ or "")
        self.annotations = annotations or ToolAnnotations()
        self.freeform = freeform
        self._grammar = None if freeform is None or own_parser else checkable_grammar(freeform)
        self.namespace = namespace
        self.strict = strict
        self.parallel = self.annotations.readOnlyHint if parallel is None else parallel
        self.executor = executor
        self.examples = tuple(examples)
        self._parameters = self.parameters()
        execution = self._execution(blocking)
        self._execute = execution.call
        read_only = self.annotations.readOnlyHint
        self.acts_through_context = execution.takes_context or read_only
        self._needs_context = executor is not None and (execution.takes_context or not read_only)
        self._spec: ToolSpec | None = None

    @classmethod
    def create(cls, conv_state: ConversationState, **params: Any) -> Sequence["ToolDefinition[Any, Any]"]:
        """Return configured instances; a subclass with state overrides it."""
        return [cls(**params)]

    def _execution(self, blocking: bool | None) -> Execution:
        """Return how the executor is called, decided once."""
        executor = self.executor
        if executor is None:
            return Execution(_no_executor, True)
        function = executor.__call__
        takes_context = _takes_context(function)
        call: Execute = function if takes_context else lambda action, ctx: function(action)
        if not inspect.iscoroutinefunction(function):
            call = on_a_thread(call) if (executor.blocking if blocking is None else blocking) else in_the_loop(call)
        return Execution(call, takes_context)

    @property
    def action_type(self) -> type[A]:
        """The type of its input."""
        return self._action_type

    @cached_property
    def _validator(self) -> ModelValidator[A]:
        return ModelValidator(self.action_type, self._parameters)

    @property
    def spec(self) -> ToolSpec:
        """The spec that the model sees."""
        if self._spec is None:
            if self.freeform is not None:
                self._spec = FreeformTool(name=self.name, description=self.description, format=self.freeform)
            else:
                parameters, strict = self._wire_parameters()
                self._spec = ResponsesApiTool(
                    name=self.name, description=self.description, parameters=parameters, strict=strict
                )
        return self._spec

    def _wire_parameters(self) -> tuple[JsonSchema, bool]:
        """Return the schema as sent; a tool that strict mode cannot express stays non-strict as a whole."""
        parameters = self._parameters
        if not self.strict:
            return parameters, False
        try:
            return to_strict(parameters), True
        except StrictError as error:
            log.warning("tool %s is sent without strict mode: %s", self.name, error)
            return parameters, False

    def parameters(self) -> JsonSchema:
        """Return the schema of the arguments as the model sees it."""
        return schema_of_model(self.action_type)

    def to_openai_tool(self) -> dict[str, JsonValue]:
        """Return the tool as Chat Completions takes it; a freeform tool as a function with one text field."""
        spec = self.spec
        if isinstance(spec, FreeformTool):
            spec = spec.as_function()
        chat = spec.to_chat()
        if chat is None:
            raise TypeError(f"{self.name} cannot be expressed in Chat Completions")
        return chat

    def to_responses_tool(self) -> dict[str, JsonValue]:
        """Return the tool as the Responses API takes it."""
        return self.spec.to_responses()

    def action_from_arguments(self, arguments: Mapping[str, JsonValue]) -> A:
        """Parse a validated action. Raises `RespondToModel` that names what is wrong."""
        return validate_value(arguments, self._validator)

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Accept JSON arguments always, also as the text of a freeform call; other text if the tool is freeform; and
        native items only for `native` tools."""
        if isinstance(payload, FunctionPayload):
            return True
        if isinstance(payload, CustomPayload):
            return self.freeform is not None or self._arguments_in(payload) is not None
        return super().matches_kind(payload) or isinstance(payload, NativePayload | LocalShellPayload)

    def tool_input(self, payload: ToolPayload) -> JsonValue:
        """Return the input before validation, tolerantly parsed."""
        arguments = self._arguments_in(payload)
        return super().tool_input(payload) if arguments is None else decode_arguments(arguments, self._validator)

    def _arguments_in(self, payload: ToolPayload) -> str | None:
        """Return the JSON arguments of a call; also those that a freeform call of a tool holds that takes no text."""
        if isinstance(payload, _WITH_ARGUMENTS):
            return payload.arguments
        if isinstance(payload, CustomPayload) and self.freeform is None and payload.input.lstrip().startswith("{"):
            return payload.input
        return None

    def asks_first(self, invocation: ToolInvocation) -> bool:
        """Return what the executor says of all its calls."""
        return self.executor is not None and self.executor.asks_first

    async def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Return True unless the tool is annotated as read-only."""
        return not self.annotations.readOnlyHint

    def whole_effect(self, invocation: ToolInvocation) -> ToolEffect:
        """Return the call with its validated arguments."""
        return self._effect(self.read_action(invocation))

    def _effect(self, action: A) -> ToolEffect:
        shown = action.model_dump_json(exclude_unset=True)
        return ToolEffect(name=self.name, arguments=shown, annotations=self.annotations)

    def read_action(self, invocation: ToolInvocation) -> A:
        """Parse the action of a call. Raises `RespondToModel` that names what is wrong."""
        if invocation.decoded is not _UNSET:
            return validate_value(invocation.decoded, self._validator)
        payload = invocation.payload
        arguments = self._arguments_in(payload)
        if arguments is not None:
            return read_arguments(arguments, self._validator)
        if isinstance(payload, CustomPayload):
            if self._grammar is not None:
                self._grammar.check(payload.input)
            text_field = next(iter(self.action_type.model_fields), "input")
            return self.action_type.model_validate({text_field: payload.input})
        if isinstance(payload, LocalShellPayload):
            return validate_value(msgspec.to_builtins(payload.params), self._validator)
        raise RespondToModel(f"{self.name} takes JSON arguments; call it as a function")

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Validate, execute, and turn the observation into the answer."""
        if not ctx.host.observed:
            return output_of(await self._execute(self._read(invocation), ctx), invocation.call_id)
        action = self.read_action(invocation)
        ctx.emit(ActionEvent(invocation.call_id, self.name, action))
        result = await self._execute(action, ctx)
        if isinstance(result, Observation):
            ctx.emit(ObservationEvent(invocation.call_id, self.name, result))
        return output_of(result, invocation.call_id)

    def _read(self, invocation: ToolInvocation) -> Any:
        """Return what `_execute` takes, where nobody is shown the action."""
        return self.read_action(invocation)

    async def __call__(self, action: A, ctx: ToolContext | None = None) -> O:
        """Run a validated action and return the observation. In plain code that is `call`.

        Without `ctx` it acts in the agent that handed it out (`Agent.tools_map`), else in a context of its own, in the
        working directory of the process. Raises `RespondToModel` where the tool refuses, and what it raises itself.
        """
        if ctx is None and not self._needs_context:
            return await self._execute(action, ctx)  # type: ignore[no-any-return]  # the executor says what it returns
        if ctx is None:
            handed_out = self.home and self.home()
            if handed_out is None:
                async with ToolContext.local() as own:
                    return await self._act(action, own)
            ctx = handed_out
        host = ctx.host
        return (
            await host.on_own_loop(lambda: self._act(action, ctx))
            if isinstance(host, LocalHost)
            else await self._act(action, ctx)
        )

    def at_home(self, context: "Callable[[], ToolContext | None]") -> "ToolDefinition[A, O]":
        """This tool, acting there where it is called without a context; a twin, while it is at home somewhere else."""
        taken = self.home is not None and self.home != context and self.home() is not None
        tool = copy(self) if taken else self
        tool.home = context
        return tool

    def call(self, action: A, context: ToolContext | None = None, *, timeout: float | None = None) -> O:
        """`await tool(action, context)`, for plain code, also where a loop runs (a notebook).

        Raises what the tool raises, and `TimeoutError` after `timeout` seconds: the call is cancelled then.
        """
        return wait_for_coroutine(self(action, context), timeout)

    async def _act(self, action: A, ctx: ToolContext) -> O:
        if self.acts_through_context:
            return await self._execute(action, ctx)  # type: ignore[no-any-return]  # the executor says what it returns
        return await ctx.run(self._effect(action), lambda access: self._execute(action, ctx))

    async def close(self) -> None:
        """Close the executor, if it can be closed."""
        if self.executor is not None:
            closing = self.executor.close()
            if inspect.isawaitable(closing):
                await closing


def output_of(value: object, call_id: str = "") -> ToolOutput:
    """Build the answer from a tool's value: text unchanged, an observation by its content, anything else as JSON."""
    if isinstance(value, str):
        return ToolOutput(encodable(value), True)
    if isinstance(value, _NUMBERS):
        return ToolOutput(_encode_json(value).decode(), True)
    if isinstance(value, Observation):
        return value.to_output(call_id)
    if isinstance(value, ToolOutput):
        return value
    if value is None:
        return ToolOutput(NO_OUTPUT, True)
    if isinstance(value, tuple) and value and all(isinstance(part, ContentPart) for part in value):
        return ToolOutput(value, True)
    return ToolOutput(pydantic_core.to_json(value, serialize_unknown=True).decode(), True)


_UNSET = msgspec.UNSET
_WITH_ARGUMENTS = (FunctionPayload, NativePayload)
_NUMBERS = (bool, int, float)
_encode_json = msgspec.json.encode


async def _no_executor(action: Action, ctx: ToolContext) -> Any:
    raise RespondToModel("this tool has no executor: it cannot be run here")


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1


def on_a_thread(call: Execute) -> Execute:
    """Make the blocking `call` awaitable, on a separate thread."""

    async def awaited(action: Any, ctx: ToolContext) -> Any:
        return await run_blocking(call, action, ctx)

    return awaited


def in_the_loop(call: Execute) -> Execute:
    """Make the plain `call`, which returns at once, awaitable."""

    async def awaited(action: Any, ctx: ToolContext) -> Any:
        return call(action, ctx)

    return awaited


def _declared_types(cls: type, executor: object) -> tuple[type[Any] | None, type[Any] | None]:
    """Return the type arguments of `ToolDefinition[A, O]` in the class, else of `ToolExecutor[A, O]` in the
    executor's."""
    for start, base in ((cls, ToolDefinition), (type(executor), ToolExecutor)):
        for ancestor in getattr(start, "__mro__", ()):
            for generic in getattr(ancestor, "__orig_bases__", ()):
                origin = get_origin(generic)
                if isinstance(origin, type) and issubclass(origin, base):
                    types = tuple(t if isinstance(t, type) else None for t in get_args(generic))
                    if len(types) == 2 and types[0] is not None:
                        return types[0], types[1]
    return None, None


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
