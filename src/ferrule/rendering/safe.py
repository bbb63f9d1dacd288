"""Foreign text, made so that it cannot move a terminal's cursor or look like what it is not."""

import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Control characters, and those that change the reading direction, which would make the text look different.


def safe(text: str) -> str:
    """Return the text with control characters as escapes such as `\\x1b`; tabs and line breaks stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def plain(text: str) -> str:
    """Return the text without control characters, on one line."""
    return _UNSAFE.sub("", " ".join(text.split()))
