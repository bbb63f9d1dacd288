"""What a search of tools takes and answers, as a native item and as a function."""

from collections.abc import Sequence

import msgspec
import pydantic_core
from pydantic import BaseModel, ConfigDict

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.search_tool_bm25.definition import SearchAction
from ferrule.builtin.tool_search import DESCRIPTION
from ferrule.protocol.items import ToolSearchOutput
from ferrule.protocol.payload import NativePayload, ToolOutput
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Observation, ToolDefinition
from ferrule.tools.registry import NATIVE
from ferrule.tools.search import DeferredTool, ToolSearch, as_loaded_specs


class FoundTool(BaseModel):
    """One tool, by the name that wires without namespaces call it."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str


class ToolSearchObservation(Observation):
    """The tools that were found. A function's answer names them; the native one holds `loaded`, their full specs."""

    bounded = True

    tools: tuple[FoundTool, ...]
    loaded: tuple[str, ...]

    @classmethod
    def of(cls, tools: Sequence[DeferredTool]) -> "ToolSearchObservation":
        """What is answered when these were found."""
        return cls(
            tools=tuple(FoundTool(name=tool.flat_name, description=tool.spec.description) for tool in tools),
            loaded=tuple(spec.responses_json.decode() for spec in as_loaded_specs(tools)),
        )

    @property
    def to_llm_content(self) -> str:
        return pydantic_core.to_json(self.tools).decode()

    def to_output(self, call_id: str) -> ToolOutput:
        """The native answer."""
        specs = tuple(msgspec.Raw(spec.encode()) for spec in self.loaded)
        item = ToolSearchOutput(tools=specs, execution="client", call_id=call_id, status="completed")
        return ToolOutput(item, True, True)


class ToolSearchTool(ToolDefinition[SearchAction, ToolSearchObservation]):
    """Searches the session's deferred tools."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ToolSearchTool]":
        """The one instance, which answers both kinds of calls."""
        from ferrule.builtin.tool_search.impl import ToolSearchExecutor

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

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Answer in the form of the call."""
        if isinstance(invocation.payload, NativePayload):
            return await super().handle(invocation, ctx)
        observation = await self(self.read_action(invocation), ctx)
        return ToolOutput(observation.to_llm_content, True, True)
