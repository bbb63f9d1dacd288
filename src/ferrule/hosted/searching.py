"""What `file_search` and `web_search` share: the queries of a call, and what the conversation has seen."""

from collections.abc import Iterable

from ferrule.hosted.tool import Scope
from ferrule.web.memory import Memory


def distinct(queries: Iterable[str | None]) -> list[str]:
    """Return the queries that say something, each once."""
    return [one for one in dict.fromkeys(queries) if one and one.strip()]


def memory_of(scope: Scope) -> Memory:
    """Return what the conversation has seen."""
    memory = scope.shared.get(Memory)
    memory.recall(scope.items)
    return memory
