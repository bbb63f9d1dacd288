"""What `get_memory` takes and answers."""

import json
from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.get_memory import DESCRIPTION
from ferrule.builtin.hints import LOOKS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class GetMemoryAction(Action):
    """Which memory."""

    memory_id: str = Field(description="The id of the memory, a UUID")


class GetMemoryObservation(Observation):
    """A memory, as pretty JSON with its fields in alphabetical order."""

    memory_id: str
    memory_summary: str
    trace_summary: str

    @property
    def to_llm_content(self) -> str:
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=2, sort_keys=True)


class GetMemoryTool(ToolDefinition[GetMemoryAction, GetMemoryObservation]):
    """Reads the user's memory store."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GetMemoryTool]":
        """The one instance."""
        from ferrule.builtin.get_memory.impl import GetMemoryExecutor

        return [cls(description=DESCRIPTION, executor=GetMemoryExecutor(conv_state.home), annotations=LOOKS)]
