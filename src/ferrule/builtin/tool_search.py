"""`tool_search`: the model looks for tools that a request does not list."""

from collections.abc import Sequence

import msgspec
import pydantic_core
from pydantic import BaseModel, ConfigDict

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.search_tool_bm25 import SearchAction, checked
from ferrule.protocol.items import ToolSearchOutput
from ferrule.protocol.payload import NativePayload, ToolOutput
from ferrule.protocol.specs import ToolSearchTool as ToolSearchSpec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.action import Observation
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.registry import NATIVE
from ferrule.tools.search import DeferredTool, ToolSearch, as_loaded_specs

DESCRIPTION = """\
Looks for tools that are not listed here (of MCP servers, plugins and the client) by words of their names, \
descriptions and parameters. Search before you say that something cannot be done. The tools that it finds can be \
called from then on."""


class FoundTool(BaseModel):
    """A tool, by its name on wires without namespaces."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str


class ToolSearchObservation(Observation):
    """The tools that were found. A function's answer names them; the native answer holds their specs, `loaded`."""

    bounded = True

    tools: tuple[FoundTool, ...]
    loaded: tuple[str, ...]

    @classmethod
    def of(cls, tools: Sequence[DeferredTool]) -> "ToolSearchObservation":
        """Build the observation for these tools."""
        return cls(
            tools=tuple(FoundTool(name=tool.flat_name, description=tool.spec.description) for tool in tools),
            loaded=tuple(spec.responses_json.decode() for spec in as_loaded_specs(tools)),
        )

    @property
    def to_llm_content(self) -> str:
        return pydantic_core.to_json(self.tools).decode()

    def to_output(self, call_id: str) -> ToolOutput:
        """Return the native answer."""
        specs = tuple(msgspec.Raw(spec.encode()) for spec in self.loaded)
        item = ToolSearchOutput(tools=specs, execution="client", call_id=call_id, status="completed")
        return ToolOutput(item, True, True)


class ToolSearchExecutor(ToolExecutor[SearchAction, ToolSearchObservation]):
    """The index is the session's."""

    def __init__(self, search: ToolSearch) -> None:
        self._search = search

    async def __call__(self, action: SearchAction, ctx: ToolContext) -> ToolSearchObservation:
        """Find the tools that fit best."""
        hits = self._search.search(*checked(action))
        return ToolSearchObservation.of([hit.tool for hit in hits])


class ToolSearchTool(ToolDefinition[SearchAction, ToolSearchObservation]):
    """Searches the session's deferred tools."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ToolSearchTool]":
        """Create one for the conversation; it answers both kinds of calls."""
        executor = ToolSearchExecutor(conv_state.shared.get(ToolSearch))
        return [
            cls(
                name="tool_search",
                namespace=NATIVE,
                description=DESCRIPTION,
                executor=executor,
                annotations=LOOKS,
            )
        ]

    @property
    def spec(self) -> ToolSpec:
        """The native item, which other wires get as a function."""
        parameters = dict(self.parameters().mapping)
        return ToolSearchSpec(execution="client", description=DESCRIPTION, parameters=parameters)

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Answer in the form of the call."""
        if isinstance(invocation.payload, NativePayload):
            return await super().handle(invocation, ctx)
        observation = await self(self.read_action(invocation), ctx)
        return ToolOutput(observation.to_llm_content, True, True)


TOOL = ToolSearchTool
