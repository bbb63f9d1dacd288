"""When the model calls tools in a turn, in the spellings that people know from the wires."""

from collections.abc import Mapping
from typing import Any, get_args

from ferrule.model.stream import ForcedTool, ToolChoice
from ferrule.protocol.errors import UsageError

_WORDS: tuple[str, ...] = get_args(get_args(ToolChoice)[0])

ToolChoiceLike = str | ForcedTool | Mapping[str, Any]
"""`auto`, `none`, `required`, or one tool: `{"type": "function", "function": {"name": ...}}` or its flat spelling."""


def as_tool_choice(choice: ToolChoiceLike) -> ToolChoice:
    """Parse a tool choice. A hosted tool is named by its type. Raises `UsageError` for anything else."""
    if isinstance(choice, ForcedTool):
        return choice
    if isinstance(choice, Mapping):
        named = choice.get(str(choice.get("type")))
        name = (named if isinstance(named, Mapping) else choice).get("name", choice.get("type"))
        if isinstance(name, str) and name not in ("function", "custom"):
            return ForcedTool(name)
    elif choice in _WORDS:
        return choice  # type: ignore[return-value]  # it is one of the words
    raise UsageError(
        f"unknown tool choice {choice!r}; it is one of {', '.join(_WORDS)}, "
        'or {"type": "function", "function": {"name": NAME}}'
    )


def after_a_call(choice: ToolChoice) -> ToolChoice:
    """Return the choice after a call: a forced call leaves the model free, or it could never end."""
    return choice if choice == "none" else "auto"
