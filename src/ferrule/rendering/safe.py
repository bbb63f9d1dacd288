"""Foreign text, made so that it cannot move a terminal's cursor or look like what it is not."""

import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Control characters, those that change the reading direction, which would make the text look different, and halves of
# characters, as file names have them: no terminal could be told of those.


def safe(text: str) -> str:
    """Return the text with control characters as escapes such as `\\x1b`; tabs and line breaks stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def writable(text: str) -> str:
    """Return the text without control characters, as somebody may edit it; tabs and line breaks stay."""
    return _UNSAFE.sub("", text)


def plain(text: str) -> str:
    """Return the text without control characters, on one line."""
    return _UNSAFE.sub("", " ".join(text.split()))
