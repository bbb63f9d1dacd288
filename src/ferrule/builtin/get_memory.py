"""`get_memory`: a stored memory."""

import json
from collections.abc import Sequence
from uuid import UUID

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.memory import MemoryStore
from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.tools.action import Action, Observation
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Load a stored memory by its id: what was learned in earlier work."""


class GetMemoryAction(Action):
    """The id of a memory."""

    memory_id: str = Field(description="The id of the memory, a UUID")


class GetMemoryObservation(Observation):
    """A memory, as pretty JSON with its fields in alphabetical order."""

    memory_id: str
    memory_summary: str
    trace_summary: str

    @property
    def to_llm_content(self) -> str:
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=2, sort_keys=True)


class GetMemoryExecutor(ToolExecutor[GetMemoryAction, GetMemoryObservation]):
    """Opens the store for each call: it may not be there yet."""

    def __init__(self, home: str) -> None:
        self._store = MemoryStore(home)

    def __call__(self, action: GetMemoryAction) -> GetMemoryObservation:
        """Return the memory. Raises `RespondToModel`."""
        try:
            memory_id = str(UUID(action.memory_id))
        except ValueError as error:
            raise RespondToModel(f"memory_id must be a valid thread id: {error}") from error
        try:
            memory = self._store.get(memory_id)
        except UsageError as error:
            raise RespondToModel(str(error)) from error
        if memory is None:
            raise RespondToModel(f"memory not found for memory_id={memory_id}")
        return GetMemoryObservation(
            memory_id=memory.id, memory_summary=memory.summary, trace_summary=memory.trace_summary
        )


class GetMemoryTool(ToolDefinition[GetMemoryAction, GetMemoryObservation]):
    """Reads the user's memory store."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GetMemoryTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=GetMemoryExecutor(conv_state.home), annotations=LOOKS)]


TOOL = GetMemoryTool
