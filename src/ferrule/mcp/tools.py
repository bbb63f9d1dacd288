"""A server's tool as one of ours: definition, executor, action and observation."""

import time
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec
from pydantic import Field

from ferrule.mcp.client import MCPClient, McpTool
from ferrule.mcp.content import parts_of
from ferrule.mcp.errors import McpFailure
from ferrule.mcp.names import qualified_name
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import McpToolCallBegin, McpToolCallEnd, McpToolCallProgress
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.protocol.payload import FunctionPayload, McpPayload, ToolKind, ToolPayload
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.schemas.sanitize import Sanitized, sanitize
from ferrule.tools.action import Action, Observation
from ferrule.tools.arguments import read_arguments, validate_value
from ferrule.tools.context import Access, ToolContext, ToolInvocation
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.effects import McpEffect
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.foreign import ForeignValidator

if TYPE_CHECKING:
    from ferrule.mcp.schema import Schema

MAX_DESCRIPTION = 8_000
"""Characters of a description: a server must not fill the context before it is even called."""


class MCPToolAction(Action):
    """The arguments of any MCP tool, as its server takes them."""

    data: dict[str, Any] = Field(default_factory=dict)


class MCPToolObservation(Observation):
    """The result of an MCP tool: `result` is the server's whole answer."""

    server: str
    tool: str
    result: dict[str, Any]

    @property
    def is_error(self) -> bool:
        """Whether the tool itself reports a failure."""
        return self.result.get("isError") is True

    @property
    def success(self) -> bool:
        """The opposite of `is_error`."""
        return not self.is_error

    @property
    def to_llm_content(self) -> str | Sequence[ContentPart]:
        """Texts and images; a single text as plain text."""
        parts = parts_of(self.result)
        if all(isinstance(part, InputText) for part in parts):
            return "\n".join(cast("InputText", part).text for part in parts)
        return parts


class MCPToolExecutor(ToolExecutor[MCPToolAction, MCPToolObservation]):
    """Runs one tool on its server, from any loop. `owner`: closing it closes the client."""

    asks_first = True

    def __init__(self, tool: McpTool, client: MCPClient, *, owner: bool = True) -> None:
        self.tool = tool
        self.client = client
        self._owner = owner

    async def __call__(self, action: MCPToolAction, ctx: ToolContext) -> MCPToolObservation:
        """Get the call approved, run it, and report its duration. Raises `RespondToModel`."""
        tool = self.tool
        arguments = msgspec.json.encode(action.data).decode()
        effect = McpEffect(
            server=tool.server,
            tool=tool.name,
            arguments=arguments,
            annotations=tool.annotations,
            approval=self.client.settings.approval,
        )
        return await ctx.run(effect, lambda access: self._observed(action, arguments, ctx, access))

    async def _observed(
        self, action: MCPToolAction, arguments: str, ctx: ToolContext, access: Access
    ) -> MCPToolObservation:
        if not ctx.host.observed:
            return await self._run(action, ctx, None)
        tool, started = self.tool, time.monotonic()
        ctx.emit(McpToolCallBegin(call_id=ctx.call_id, server=tool.server, tool=tool.name, arguments=arguments))

        def progressed(progress: float, total: float | None, message: str) -> None:
            ctx.emit(McpToolCallProgress(call_id=ctx.call_id, progress=progress, total=total, message=message))

        output: tuple[ContentPart, ...] = ()
        success = False
        try:
            observation = await self._run(action, ctx, progressed)
            output, success = parts_of(observation.result), observation.success
            return observation
        except RespondToModel as error:
            output = (InputText(encodable(str(error))),)
            raise
        finally:
            took = round((time.monotonic() - started) * 1000)
            ctx.emit(
                McpToolCallEnd(
                    call_id=ctx.call_id,
                    server=tool.server,
                    tool=tool.name,
                    duration_ms=took,
                    success=success,
                    output=output,
                )
            )

    async def _run(self, action: MCPToolAction, ctx: ToolContext, progressed: Any) -> MCPToolObservation:
        callers = self.client.callers
        callers.append(ctx)
        try:
            result = await self.client.call_tool(self.tool.name, action.data, on_progress=progressed)
        except McpFailure as error:
            raise RespondToModel(str(error)) from error
        finally:
            callers[:] = [caller for caller in callers if caller is not ctx]
        return MCPToolObservation.model_construct(server=self.tool.server, tool=self.tool.name, result=result)

    async def close(self) -> None:
        """Close the client, unless a source owns it, which other sessions may use as well."""
        if self._owner:
            await self.client.close()


class MCPToolDefinition(ToolDefinition[MCPToolAction, MCPToolObservation]):
    """An MCP tool. Its arguments are checked against the server's own schema; a pydantic model of them is made only
    where somebody asks for one."""

    kind = ToolKind.MCP

    def __init__(
        self,
        tool: McpTool,
        client: MCPClient,
        *,
        name: str | None = None,
        told: Sanitized | None = None,
        owner: bool = True,
    ) -> None:
        self.mcp_tool = tool
        self.told = told or sanitize(tool.schema, tool=tool.name)
        super().__init__(
            executor=MCPToolExecutor(tool, client, owner=owner),
            name=name or qualified_name(tool.server, tool.name),
            description=shown_description(tool.description),
            annotations=tool.annotations,
            parallel=client.settings.supports_parallel_tool_calls,
        )
        self._foreign = ForeignValidator(tool.schema, self.told)

    def parameters(self) -> JsonSchema:
        """Return the schema as the model is told."""
        return self.told.schema

    @cached_property
    def model(self) -> "type[Schema]":
        """The arguments as a pydantic model, made when it is first asked for."""
        from ferrule.mcp.schema import Schema

        return Schema.from_mcp_schema(self.name, self.mcp_tool.schema.mapping)

    def matches_kind(self, payload: ToolPayload) -> bool:
        """JSON arguments."""
        return isinstance(payload, McpPayload | FunctionPayload)

    def function_payload(self, arguments: str) -> ToolPayload:
        """Return the call as the server and the tool that are meant."""
        return McpPayload(self.mcp_tool.server, self.mcp_tool.name, arguments)

    def read_action(self, invocation: ToolInvocation) -> MCPToolAction:
        """Check the arguments. Raises `RespondToModel`, which names what is wrong."""
        payload = invocation.payload
        if invocation.decoded is not msgspec.UNSET:
            data = validate_value(invocation.decoded, self._foreign)
        elif isinstance(payload, McpPayload):
            data = read_arguments(payload.raw_arguments, self._foreign)
        else:
            data = read_arguments(getattr(payload, "arguments", ""), self._foreign)
        return MCPToolAction.model_construct(data=data)

    def action_from_arguments(self, arguments: Mapping[str, JsonValue]) -> MCPToolAction:
        """Check the arguments against the server's schema. Raises `RespondToModel`, which names what is wrong."""
        return MCPToolAction(data=validate_value(dict(arguments), self._foreign))


def mcp_tool_to_openai_tool(name: str, tool: McpTool, told: Sanitized | None = None) -> ResponsesApiTool:
    """Return what the model sees of a tool, under `name`. `strict` is false: its schema is somebody else's."""
    schema = (told or sanitize(tool.schema, tool=tool.name)).schema
    return ResponsesApiTool(name=name, description=shown_description(tool.description), parameters=schema, strict=False)


_SPACES = str.maketrans("\n\t", "  ")


def shown_description(text: str) -> str:
    """Return a server's description of its tool, cut to length, without characters that a person would not see."""
    seen = text
    if not text.translate(_SPACES).isprintable():  # the common case needs no look at each character
        seen = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return seen if len(seen) <= MAX_DESCRIPTION else f"{seen[:MAX_DESCRIPTION]}..."
