"""What turns the bytes of a document into its text: its contract."""

from typing import Protocol


class DocumentParser(Protocol):
    """Reads what is no text itself, a PDF say. What it is given may be hostile."""

    async def parse(self, name: str, data: bytes) -> str | None:
        """Return the text of a document, empty if it holds none; None if it cannot be read now."""
        ...

    async def aclose(self) -> None:
        """End what belongs to it."""
        ...
