"""Budgets for what a model is told, in bytes or approximate tokens, and the one marker that stands for what was cut.

A token is four bytes of UTF-8, always: no tokenizer. Text is cut in its middle, on character boundaries.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

BYTES_PER_TOKEN = 4
"""Close enough for English and for code; a tokenizer would cost more than it tells."""
DEFAULT_OUTPUT_TOKENS = 10_000
"""Of one output, where neither user nor profile says otherwise: what models were trained with."""

T = TypeVar("T")


class OutputBudget(msgspec.Struct, frozen=True):
    """How much of an output the model may see; the unit decides what the marker counts."""

    limit: int
    unit: Literal["tokens", "bytes"] = "tokens"

    @property
    def bytes(self) -> int:
        """The budget in bytes of UTF-8."""
        return self.limit * BYTES_PER_TOKEN if self.unit == "tokens" else self.limit

    def at_most(self, tokens: int | None) -> "OutputBudget":
        """This budget, or `tokens` where that is less; None asks for nothing less."""
        if tokens is None or tokens * BYTES_PER_TOKEN >= self.bytes:
            return self
        return OutputBudget(max(tokens, 0))


def tokens_of_bytes(count: int) -> int:
    """The approximate tokens of this many bytes, rounded up."""
    return -(-count // BYTES_PER_TOKEN)


def byte_length(text: str) -> int:
    """The length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(_encode(text))


def truncate_text(text: str, budget: OutputBudget, omitted: int = 0) -> str:
    """The text if it fits, else its first and last half budget around the marker, which costs nothing.

    `omitted` bytes were left out of its middle before; the marker counts them too.
    """
    if byte_length(text) <= budget.bytes:
        return text
    return _cut(text, budget.bytes, budget.unit, omitted)


def truncate_with_warning(text: str, budget: OutputBudget, omitted: int = 0) -> str:
    """Like `truncate_text`; what was cut also says so at its start, with the whole's tokens and lines (or, where those
    are not known, the bytes left out before)."""
    if byte_length(text) <= budget.bytes:
        return text
    tokens = tokens_of_bytes(byte_length(text) + omitted)
    size = f"... {omitted} bytes omitted ..." if omitted else f"Total output lines: {count_lines(text)}"
    warning = f"Warning: truncated output (original token count: {tokens})\n{size}\n\n"
    return warning + truncate_text(text, budget, omitted)


def truncate_items(items: Sequence[str | T], budget: OutputBudget) -> list[str | T]:
    """Walk the parts of an output with one budget.

    Texts are kept while they fit; the first that does not is cut to what is left; later ones are dropped and counted in
    a last text. Parts that are no text (images) stay and cost nothing; empty texts vanish.
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
    """Lines of a text; a last one without its newline counts."""
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
