"""Output budgets in bytes or approximate tokens, and the one marker that stands for omitted text.

A token is always four bytes of UTF-8: no tokenizer. Text is cut in its middle, on character boundaries.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

BYTES_PER_TOKEN = 4
"""Close enough for English and code; a tokenizer would not be worth its cost."""
DEFAULT_OUTPUT_TOKENS = 10_000
"""Tokens of one output, unless the user or the profile sets another number: what models were trained with."""

T = TypeVar("T")


class OutputBudget(msgspec.Struct, frozen=True):
    """A limit on how much of an output the model sees; the unit decides what the marker counts."""

    limit: int
    unit: Literal["tokens", "bytes"] = "tokens"

    @property
    def bytes(self) -> int:
        """The budget in bytes of UTF-8."""
        return self.limit * BYTES_PER_TOKEN if self.unit == "tokens" else self.limit

    def at_most(self, tokens: int | None) -> "OutputBudget":
        """Return this budget, or `tokens` if that is less; None sets no limit."""
        if tokens is None or tokens * BYTES_PER_TOKEN >= self.bytes:
            return self
        return OutputBudget(max(tokens, 0))


def tokens_of_bytes(count: int) -> int:
    """Return the approximate tokens of this many bytes, rounded up."""
    return -(-count // BYTES_PER_TOKEN)


def byte_length(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(_encode(text))


def truncate_text(text: str, budget: OutputBudget, omitted: int = 0) -> str:
    """Return the text if it fits, else its first and last half budget around the marker, which costs nothing.

    `omitted` bytes were removed from its middle before; the marker counts them too.
    """
    if byte_length(text) <= budget.bytes:
        return text
    return _cut(text, budget.bytes, budget.unit, omitted)


def truncate_with_warning(text: str, budget: OutputBudget, omitted: int = 0) -> str:
    """Truncate like `truncate_text` and say so at the start, with the total tokens and lines (or, if those are
    unknown, the bytes omitted before)."""
    if byte_length(text) <= budget.bytes:
        return text
    tokens = tokens_of_bytes(byte_length(text) + omitted)
    size = f"... {omitted} bytes omitted ..." if omitted else f"Total output lines: {count_lines(text)}"
    warning = f"Warning: truncated output (original token count: {tokens})\n{size}\n\n"
    return warning + truncate_text(text, budget, omitted)


def truncate_items(items: Sequence[str | T], budget: OutputBudget) -> list[str | T]:
    """Apply one budget to the parts of an output.

    Texts are kept while they fit; the first that does not is cut to what is left; later ones are dropped and counted
    in a final text. Non-text parts (images) stay and cost nothing; empty texts vanish.
    """
    kept: list[str | T] = []
    room, dropped = budget.bytes, 0
    for item in items:
        if not isinstance(item, str):
            kept.append(item)
        elif not item:
            continue
        elif room <= 0:
            dropped += 1
        else:
            size = byte_length(item)
            kept.append(item if size <= room else _cut(item, room, budget.unit))
            room -= size
    if dropped:
        kept.append(f"[omitted {dropped} text items ...]")
    return kept


def count_lines(text: str) -> int:
    """Count the lines of a text, including a last one without its newline."""
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def _cut(text: str, keep: int, unit: Literal["tokens", "bytes"], omitted: int = 0) -> str:
    data = _encode(text)
    left = _boundary_before(data, keep // 2)
    right = _boundary_after(data, len(data) - (keep - keep // 2))
    if unit == "tokens":
        removed = tokens_of_bytes(len(data) + omitted - keep)
        marker = f"…{removed} tokens truncated…"
    else:
        marker = f"…{len(_decode(data[left:right])) + omitted} chars truncated…"
    return _decode(data[:left]) + marker + _decode(data[right:])


def _boundary_before(data: bytes, index: int) -> int:
    while 0 < index < len(data) and 0x80 <= data[index] < 0xC0:
        index -= 1
    return index


def _boundary_after(data: bytes, index: int) -> int:
    while index < len(data) and 0x80 <= data[index] < 0xC0:
        index += 1
    return index


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
