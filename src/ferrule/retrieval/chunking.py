"""Cut a text into overlapping chunks, measured in tokens."""

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

TokenCounter = Callable[[str, int, int], int]
"""Takes a text, a place in it, and how many tokens. Returns where the last of so many tokens from there ends, or where
the text does."""

BREAK_SHARE = 4
"""A chunk ends at a line break if there is one in its last quarter: a sentence or a statement then stays whole."""

_ASCII = r"[a-zA-Z]{1,6}+ ?+|[^a-zA-Z0-9]\s{0,60}+|[0-9]{1,3}+"
_UNICODE = r"[^\W\d_\u2e80-\U0010ffff]{1,6}+ ?+|[\W_]\s{0,60}+|\d{1,3}+|[\u2e80-\U0010ffff]"


class Chunking(msgspec.Struct, frozen=True):
    """How long a chunk is at most, and how much of it the next one repeats at most, in tokens."""

    max_tokens: int = 800
    overlap_tokens: int = 400


class Chunk(msgspec.Struct, frozen=True):
    """A part of a text; `start` is where it begins there, in characters."""

    text: str
    start: int


def estimated_tokens(text: str, start: int, count: int) -> int:
    """Count about what tokenizers of models do: six letters with the blank behind them, three digits, a sign, a line
    break with its indentation, a character of Chinese. See `TokenCounter`."""
    match = _tokens(text.isascii(), count).match(text, start)
    return match.end() if match else len(text)


@lru_cache(maxsize=64)
def _tokens(ascii_only: bool, count: int) -> "re.Pattern[str]":
    """Return what matches so many tokens at once: one by one they take five times as long."""
    return re.compile(rf"(?:{_ASCII if ascii_only else _UNICODE}){{1,{count}}}+")


def chunks(text: str, how: Chunking, counter: TokenCounter = estimated_tokens) -> list[Chunk]:
    """Cut a text into chunks, in order. Together they hold all of it but the blanks around them; none is blank."""
    found: list[Chunk] = []
    start, end = 0, len(text.rstrip())
    while start < end:
        again = counter(text, start, how.max_tokens - how.overlap_tokens)
        stop = again
        if how.overlap_tokens and again < end:
            stop = counter(text, again, how.overlap_tokens)
        part = (stop - start) // BREAK_SHARE
        if stop < end:
            stop = text.rfind("\n", stop - part, stop) + 1 or stop
        piece = text[start:stop]
        if bare := piece.strip():
            found.append(Chunk(bare, start + len(piece) - len(piece.lstrip())))
        if stop >= end:
            break
        start = min(text.find("\n", again, again + part) + 1 or again, stop)
    return found
