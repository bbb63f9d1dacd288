"""What FTS5 is given to index, and how a question becomes its query.

Its tokenizer takes a run of letters as one word. Chinese, Japanese and Thai put no blanks between words, so that each
of their characters is indexed as a word here, and a question asks for pairs of them.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

MAX_WORDS = 128
"""Words of a question that are looked for: each costs as many steps as there are chunks with it."""

_CLOSE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts whose words have no blanks between them."""
_CLOSE_LETTER = re.compile(f"[{_CLOSE}]")
_WORD = re.compile(rf"[{_CLOSE}]+|[^\W_{_CLOSE}]+")


def writable(text: str) -> str:
    """Return a text that can be stored and sent: halves of characters, which parsers and models write, become `?`."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def indexed(text: str) -> str:
    """Return a text as it is indexed."""
    return text if text.isascii() else _CLOSE_LETTER.sub(r" \g<0> ", text)


def match_expression(question: str) -> str:
    """Return the query for chunks with any word of a question, in FTS5's language; empty if it has no word."""
    terms = dict.fromkeys(_terms(question))
    return " OR ".join(f'"{term}"' for term, _ in zip(terms, range(MAX_WORDS), strict=False))


def _terms(question: str) -> Iterator[str]:
    for match in _WORD.finditer(question.casefold()):
        word = match[0]
        if len(word) > 1 and _CLOSE_LETTER.match(word):
            yield from (f"{one} {other}" for one, other in pairwise(word))
        else:
            yield word
