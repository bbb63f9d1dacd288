"""Tools supplied by a client at run time. One handler runs them all: it calls the client and waits for the answer.

Registering a tool is consent to run it: calls are serialised, and need approval only under the policy untrusted.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from ferrule.protocol.content import InputText
from ferrule.protocol.dynamic_tools import (
    CALL_TIMEOUT,
    DynamicToolCallOutputContentItem,
    DynamicToolResponse,
    DynamicToolSpec,
)
from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.protocol.events import DynamicToolCallRequest
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.protocol.payload import FunctionPayload, ToolOutput
from ferrule.protocol.specs import NamespaceTool, ResponsesApiTool
from ferrule.schemas.sanitize import Sanitized, sanitize
from ferrule.tools.arguments import read_arguments, validate_value
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.effects import ToolEffect
from ferrule.tools.foreign import ForeignValidator
from ferrule.tools.handler import ToolHandler
from ferrule.tools.questions import DynamicCallback, NoAnswer
from ferrule.tools.registry import ToolKey, ToolRegistryBuilder

__all__ = [
    "DynamicSource",
    "DynamicToolCallOutputContentItem",
    "DynamicToolCallRequest",
    "DynamicToolHandler",
    "DynamicToolResponse",
    "DynamicToolSpec",
    "dynamic_tool_to_openai_tool",
]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

AskClient = Callable[[DynamicToolCallRequest, float], Awaitable[DynamicToolResponse | NoAnswer]]
"""Sends a call to the client and waits up to that many seconds."""


class _Tool(msgspec.Struct, frozen=True):
    spec: DynamicToolSpec
    told: Sanitized
    validator: ForeignValidator
    ask: AskClient
    timeout: float


class DynamicToolHandler(ToolHandler):
    """The handler of all dynamic tools of a session."""

    def __init__(self) -> None:
        self.tools: dict[ToolKey, _Tool] = {}

    async def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Return True: the effects of a client's tool are unknown."""
        return True

    def whole_effect(self, invocation: ToolInvocation) -> ToolEffect:
        """Return the call with its validated arguments."""
        tool = self._tool(invocation)
        shown = msgspec.json.encode(_arguments(invocation, tool)).decode()
        return ToolEffect(name=tool.spec.name, arguments=shown, annotations=self.annotations)

    def _tool(self, invocation: ToolInvocation) -> _Tool:
        tool = self.tools.get(invocation.key)
        if tool is None:
            raise RespondToModel(f"unsupported call: {invocation.tool_name}")
        return tool

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Call the client. Raises `RespondToModel` if the arguments are wrong or no answer comes."""
        tool = self._tool(invocation)
        request = DynamicToolCallRequest(
            call_id=invocation.call_id,
            turn_id=invocation.turn_id,
            tool=tool.spec.name,
            arguments=_arguments(invocation, tool),
            namespace=tool.spec.namespace,
        )
        answer = await tool.ask(request, tool.timeout)
        if isinstance(answer, NoAnswer):
            raise RespondToModel(f"the tool {tool.spec.name} gave no answer: {answer.reason}")
        return _output(answer)


class DynamicSource:
    """The dynamic tools of a session, as a `ToolSource`: tools may be added and removed between requests.

    Properties whose names `property_names` does not match get aliases for the model, which are mapped back.
    """

    def __init__(self, property_names: re.Pattern[str] | None = None) -> None:
        self.revision = 0
        self._property_names = property_names
        self.handler = DynamicToolHandler()

    def add(
        self,
        specs: Iterable[DynamicToolSpec],
        ask: AskClient,
        taken: Callable[[str], bool] = lambda name: False,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Register tools, all or none. Raises `UsageError` for a name that no model can call or that is `taken`."""
        made: dict[ToolKey, _Tool] = {}
        for spec in specs:
            key = (spec.namespace, spec.name)
            for name in filter(None, key):
                if not _NAME.fullmatch(name):
                    raise UsageError(f"a dynamic tool cannot be named {name!r}: use 1 to 64 of A-Z a-z 0-9 _ -")
            if key in made or key in self.handler.tools or (spec.namespace is None and taken(spec.name)):
                raise UsageError(f"a tool named {spec.name!r} is there already; give the dynamic tool another name")
            schema = _schema(spec)
            told = sanitize(schema, tool=spec.name, property_names=self._property_names)
            made[key] = _Tool(spec, told, ForeignValidator(schema, told), ask, timeout)
        self.handler.tools.update(made)
        self.revision += 1

    def remove(self, names: Iterable[str]) -> None:
        """Remove tools, from the next request on; unknown names are ignored."""
        for name in names:
            self.handler.tools.pop((None, name), None)
        self.revision += 1

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Add the current tools."""
        groups: dict[str | None, list[_Tool]] = {}
        for (namespace, name), tool in self.handler.tools.items():
            if not builder.has(name, namespace):
                groups.setdefault(namespace, []).append(tool)
                builder.register_handler(name, self.handler, namespace=namespace)
        for namespace, tools in groups.items():
            specs = tuple(dynamic_tool_to_openai_tool(tool.spec, tool.told) for tool in tools)
            if namespace is None:
                for spec in specs:
                    builder.push_deferrable(spec, False)
            else:
                builder.push_deferrable(NamespaceTool(namespace, tools[0].spec.namespace_description, specs), False)


def dynamic_tool_to_openai_tool(spec: DynamicToolSpec, told: Sanitized | None = None) -> ResponsesApiTool:
    """Build a dynamic tool's spec for the model. `strict` is false: its schema is not ours."""
    schema = (told or sanitize(_schema(spec), tool=spec.name)).schema
    return ResponsesApiTool(name=spec.name, description=spec.description, parameters=schema, strict=False)


def ask_callback(callback: DynamicCallback) -> AskClient:
    """Call a function in the client's own process."""

    async def ask(request: DynamicToolCallRequest, timeout: float) -> DynamicToolResponse | NoAnswer:
        try:
            async with asyncio.timeout(timeout):
                answer = callback(request)
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError:
            return NoAnswer(f"nobody answered within {timeout:g} seconds")

    return ask


def _schema(spec: DynamicToolSpec) -> JsonSchema:
    return JsonSchema(spec.input_schema if isinstance(spec.input_schema, dict) else {"type": "object"})


def _arguments(invocation: ToolInvocation, tool: _Tool) -> JsonValue:
    if invocation.decoded is not msgspec.UNSET:
        return validate_value(invocation.decoded, tool.validator)
    payload = invocation.payload
    if not isinstance(payload, FunctionPayload):
        raise RespondToModel(f"{tool.spec.name} takes JSON arguments; call it as a function")
    return read_arguments(payload.arguments, tool.validator)


def _output(answer: DynamicToolResponse) -> ToolOutput:
    """Build the output; a single text is plain text."""
    items = tuple(InputText(encodable(i.text)) if isinstance(i, InputText) else i for i in answer.content_items)
    if len(items) == 1 and isinstance(items[0], InputText):
        return ToolOutput(items[0].text, answer.success)
    return ToolOutput(items, answer.success)
