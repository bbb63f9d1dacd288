"""Loads a memory."""

from uuid import UUID

from ferrule.builtin.get_memory.definition import GetMemoryAction, GetMemoryObservation
from ferrule.memory import MemoryStore
from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.tools.executor import ToolExecutor


class GetMemoryExecutor(ToolExecutor[GetMemoryAction, GetMemoryObservation]):
    """Opens the store for each call: it may not be there yet."""

    def __init__(self, home: str) -> None:
        self._store = MemoryStore(home)

    def __call__(self, action: GetMemoryAction) -> GetMemoryObservation:
        """The memory. Raises `RespondToModel`."""
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
