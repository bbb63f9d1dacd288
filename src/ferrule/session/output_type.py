"""The type of a turn's last message: its schema for the server, and how it is read."""

from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.protocol.errors import FerruleError, UsageError


class OutputInvalid(FerruleError):
    """The model's last message was not of the `output_type`, as often as it was asked for it."""


class OutputType:
    """A pydantic model, a dataclass or a TypedDict. Raises `UsageError` for anything else."""

    def __init__(self, kind: Any) -> None:
        from pydantic import BaseModel, PydanticUserError, TypeAdapter
        from typing_extensions import is_typeddict

        from ferrule.schemas.writer import only_for_msgspec, schema_of_model

        self.name = getattr(kind, "__name__", str(kind))
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        if not (is_model or is_typeddict(kind) or hasattr(kind, "__dataclass_fields__")):
            raise UsageError(f"output_type: {self.name} is not a pydantic model, dataclass or TypedDict")
        try:
            self.schema: dict[str, object] = dict(schema_of_model(kind).mapping)
            by_msgspec = only_for_msgspec(kind)
            self._read: Callable[[str], Any] = (
                msgspec.json.Decoder(kind).decode if by_msgspec else TypeAdapter(kind).validate_json
            )
        except (PydanticUserError, TypeError) as error:
            raise UsageError(f"output_type: {self.name} has no JSON schema: {error}") from error

    def read(self, text: str) -> Any:
        """Return the value that the message states. Raises `ValueError` that names what is wrong."""
        return self._read(_without_fence(text))

    def correction(self, error: ValueError) -> str:
        """Return what the model is told about a message that could not be read."""
        return f"Your answer is not the JSON that was asked for: {error}\nAnswer again with nothing but that JSON."


def _without_fence(text: str) -> str:
    """Return the JSON in a Markdown fence, in which models without structured output wrap it; else the text."""
    lines = text.strip().splitlines()
    fenced = len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```"
    return "\n".join(lines[1:-1]) if fenced else text
