"""Show a model's text to people: characters that are invisible, or reorder others, are spelled out."""

import re
import unicodedata

# Letters and marks that have no shape of their own, beside the categories below.
_SHAPELESS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_HIDDEN_CATEGORIES = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"])
MAX_RUN = 40  # blanks in a row; deeper indentation is rare, and a longer run pushes the rest out of sight
_PADDING = re.compile(rf"[ \t]{{{MAX_RUN},}}|\n{{{MAX_RUN // 4},}}")
_PLAIN = re.compile(r"[\x20-\x7e]*")


def visible(text: str, *, multiline: bool = True) -> str:
    """Return `text` with control, bidi, zero-width and odd blank characters as escapes, such as `\\x1b` or `\\u202e`.

    Long runs of blanks are replaced by their count. Tabs and line breaks stay unless `multiline` is False, for text
    that must fit on one line (a path, a justification). Nothing else is cut.
    """
    if not _PLAIN.fullmatch(text):
        keep = "\n\t" if multiline else ""
        text = "".join(char if char in keep or not _is_hidden(char) else _escape(char) for char in text)
    return _PADDING.sub(_counted, text)


def _is_hidden(char: str) -> bool:
    return char != " " and (unicodedata.category(char) in _HIDDEN_CATEGORIES or _SHAPELESS.match(char) is not None)


def _escape(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _counted(run: re.Match[str]) -> str:
    kind = "line breaks" if run[0][0] == "\n" else "blanks"
    return f" [{len(run[0])} {kind}] "
