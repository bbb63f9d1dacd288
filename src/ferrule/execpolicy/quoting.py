"""Texts inside of words: what escapes and braces make of them."""

import re

_PLAIN_BRACES = re.compile(r"(?:[\w./:=@%+^-]|\{[\w./:=@%+^-]*(?:,[\w./:=@%+^-]*)+\})+")
_BRACE_PARTS = re.compile(r"\{[^}]*\}|[^{]+")
MAX_BRACES = 1000  # words that braces make of one
_ANSI_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<short>[0-9A-Fa-f]{1,4})|U(?P<long>[0-9A-Fa-f]{1,8})"
    r"|c(?P<control>.)|(?P<letter>.))",
    re.DOTALL,
)
_ANSI_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def beyond_ascii(text: str) -> int:
    """Count the characters beyond ASCII."""
    return 0 if text.isascii() else sum(char > "\x7f" for char in text)


def _ansi_character(found: re.Match[str]) -> str:
    """Return the character that an escape means; NUL for a code point that is none."""
    number = found["octal"]
    if number is not None:
        return chr(int(number, 8) & 0xFF)
    code = found["hex"] or found["short"] or found["long"]
    if code is not None:
        point = int(code, 16)
        return chr(point) if point < 0xD800 or 0xE000 <= point <= 0x10FFFF else "\0"
    if found["control"] is not None:
        return chr(ord(found["control"].upper()) & 0x1F) if found["control"] != "\\" else "\0"
    return _ANSI_LETTERS.get(found["letter"], found[0])


def expand_braces(source: str) -> tuple[str, ...]:
    """`a{b,c}` as its words; () where more than plain text and lists stands in it."""
    if not _PLAIN_BRACES.fullmatch(source):
        return ()
    found = [""]
    for part in _BRACE_PARTS.findall(source):
        choices = part[1:-1].split(",") if part[0] == "{" else [part]
        found = [before + choice for before in found for choice in choices]
        if len(found) > MAX_BRACES:
            return ()
    return tuple(word for word in found if word)


def unescape(text: str) -> str:
    """Return the inside of `$'...'` as the characters that it means."""
    return _ANSI_ESCAPE.sub(_ansi_character, text)
