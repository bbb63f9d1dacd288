"""Cut a text into overlapping chunks, measured in tokens."""

import re
from collections.abc import Callable, Sequence

import msgspec

TokenCounter = Callable[[str], Sequence[int]]
"""Takes a text, and returns where each of its tokens ends, in characters."""

BREAK_SHARE = 4
"""A chunk ends at a line break if there is one in its last quarter: a sentence or a statement then stays whole."""

_TOKEN = re.compile(r"[\u2e80-\U0010ffff]|[^\W\d_\u2e80-\U0010ffff]{1,6}|\d{1,3}|[^\w\s]|_")
"""About what tokenizers of models count: six letters, three digits, a sign, a character of Chinese."""


class Chunking(msgspec.Struct, frozen=True):
    """How long a chunk is at most, and how much of it the next one repeats, in tokens."""

    max_tokens: int = 800
    overlap_tokens: int = 400


class Chunk(msgspec.Struct, frozen=True):
    """A part of a text; `start` is where it begins there, in characters."""

    text: str
    start: int


def estimated_tokens(text: str) -> Sequence[int]:
    """Return where tokens end, without any model's tokenizer."""
    return [match.end() for match in _TOKEN.finditer(text)]


def chunks(text: str, how: Chunking, counter: TokenCounter = estimated_tokens) -> list[Chunk]:
    """Cut a text into chunks, in order. Together they hold all of it but the blanks around them; none is blank."""
    ends = counter(text)
    found: list[Chunk] = []
    first = 0  # the token that a chunk begins with
    while first < len(ends):
        start = ends[first - 1] if first else 0
        after = min(first + how.max_tokens, len(ends))
        if after < len(ends):
            after = _at_line_break(text, ends, first, after)
        stop = ends[after - 1] if after < len(ends) else len(text)
        piece = text[start:stop]
        if bare := piece.strip():
            found.append(Chunk(bare, start + len(piece) - len(piece.lstrip())))
        if after == len(ends):
            break
        first = max(after - how.overlap_tokens, first + 1)
    return found


def _at_line_break(text: str, ends: Sequence[int], first: int, after: int) -> int:
    """Return the token after the last one that a line ends with, if that is in the last part of the chunk."""
    for token in range(after, after - (after - first) // BREAK_SHARE, -1):
        if "\n" in text[ends[token - 1] : ends[token]]:
            return token
    return after
