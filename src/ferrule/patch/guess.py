"""Guess a file's encoding from a mark, a declaration or its bytes. A guess must restore every byte.

Otherwise the file is read as UTF-8, with invalid bytes kept as surrogate escapes. Sources: The Unicode Standard 3.10
(byte order marks), PEP 263 and XML 1.0 appendix F (declarations), the code charts of the rest.
"""

import re
from collections.abc import Callable

from ferrule.patch.encoding import PLAIN, Encoding

_LARGEST_GUESS = 1 << 20
"""Bytes examined for a guess: more add nothing new."""
_HEAD = 1024
"""Bytes searched for a declaration: the first lines, and the head of a page."""
_DAMAGED = 0.5
"""From this share of valid UTF-8 among the high bytes on, the text is damaged UTF-8."""
_TYPICAL = 0.85
"""Share of characters that must be common in the language of a guess. Its texts reach 95 % and more; a text read in a
wrong encoding stays below 70 %."""
_WIDE = 0.7
"""Share of ASCII among the characters of UTF-16 or UTF-32 without a mark; less is no evidence."""
_ENOUGH = 6
"""Korean characters from which on a text is no Chinese one by chance, half of whose first bytes are the Korean ones;
and letters that make a Russian word."""

_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_DECLARED = re.compile(
    rb"""\A(?:[^\n]*\n)?[^\n]*\bcoding[:=][ \t]*(?P<line>[\w.-]+)|(?:encoding|charset)=["']?(?P<page>[\w.:-]+)""",
)
_LARGER = {"gb2312": "gb18030", "gbk": "gb18030", "cp936": "gb18030", "shift_jis": "cp932", "iso8859-1": "cp1252"}
"""Maps a declared codec to the larger set of the same bytes, as browsers do (WHATWG Encoding)."""
_KNOWN = re.compile(
    r"iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|euc_(?:jp|kr|jis_2004|jisx0213)|gb18030|gbk|gb2312|big5\w*|shift_jis\w*|johab|tis-620"
)
"""Text codecs that a declaration may name: Python has others, some of which do more than decode."""
_HIGH = bytes(range(0x80, 0x100))
_UTF8_CHARACTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_RUN = re.compile(rb"([A-Za-z]?)([\x80-\xff]+)(?=([A-Za-z]?))")
_ASCII = bytes(range(0x20, 0x7F))
_LINE_END = re.compile("[\n\r]")
_UNUSUAL = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
"""Control characters that never occur in text."""


def encoding_of(data: bytes) -> Encoding:
    """Return the encoding of bytes that are not UTF-8, or contain a NUL; `PLAIN` if unknown."""
    for mark, codec in _MARKS:
        if data.startswith(mark) and (text := _text(data, codec)) is not None and "\0" not in text:
            return Encoding(codec)
    if b"\0" in data:
        return next((Encoding(codec, sure=False) for codec in _wide(data)), PLAIN)
    for codec in _declared(data[:_HEAD]):
        if _text(data, codec) is not None:
            return Encoding(codec)
    high = len(data) - len(data.translate(None, _HIGH))
    if sum(map(len, _UTF8_CHARACTER.findall(data))) >= high * _DAMAGED:
        return PLAIN
    guess = next((codec for codec, fits in _GUESSES if _fits(data, codec, fits)), None)
    return PLAIN if guess is None else Encoding(guess, sure=False)


def marked_encoding(data: bytes) -> str | None:
    """Return the name of the encoding whose mark the bytes start with, whether or not the rest is in it."""
    return next((Encoding(codec).title for mark, codec in _MARKS if data.startswith(mark)), None)


def _text(data: bytes, codec: str) -> str | None:
    """Decode the bytes; None unless the text restores exactly these bytes."""
    try:
        text = data.decode(codec)
        return text if text.encode(codec) == data else None
    except UnicodeError:
        return None


def _wide(data: bytes) -> list[str]:
    """Detect UTF-16 and UTF-32 without a mark: the byte that holds ASCII is never NUL, the others mostly are."""
    found = []
    for codec, width, full in (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1)):
        least = len(data) * (width - 1) / width * _WIDE
        if len(data) % width or data.count(0) < least or 0 in data[full::width]:
            continue
        text = _text(data, codec)
        if text and _LINE_END.search(text) and not _UNUSUAL.search(text):
            found.append(codec)
    return found


def _declared(head: bytes) -> list[str]:
    """Return the codec that the first lines declare, the larger set first; none unless its ASCII is ASCII."""
    import codecs

    found = _DECLARED.search(head)
    if found is None:
        return []
    name = (found["line"] or found["page"]).decode("ascii", "replace")
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return []
    if not _KNOWN.fullmatch(codec) or _ASCII.decode(codec, "replace") != _ASCII.decode():
        return []
    return [_LARGER[codec], codec] if codec in _LARGER else [codec]


def _fits(data: bytes, codec: str, fits: Callable[[str, bytes], bool]) -> bool:
    text = _text(data, codec)
    if text is None or _UNUSUAL.search(text):
        return False
    foreign = "".join(re.findall("[^\0-\x7f]+", text[:_LARGEST_GUESS]))
    return fits(foreign, data)


def _share(text: str, is_typical: Callable[[str], bool]) -> float:
    return sum(map(is_typical, text)) / len(text)


def _first_byte(codec: str, *ranges: tuple[int, int]) -> Callable[[str], bool]:
    """Check whether a character's bytes start in one of the ranges; the older sets keep the common ones together."""

    def is_typical(character: str) -> bool:
        try:
            encoded = character.encode(codec)
        except UnicodeEncodeError:
            return False
        return len(encoded) > 1 and any(low <= encoded[0] <= high for low, high in ranges)

    return is_typical


def _is_kana(character: str) -> bool:
    return "\u3040" <= character <= "\u30ff"


def _is_hangul(character: str) -> bool:
    return "\uac00" <= character <= "\ud7a3" or "\u3000" <= character <= "\u303f"


def _korean(text: str, data: bytes) -> bool:
    return len(text) >= _ENOUGH and _share(text, _is_hangul) >= _TYPICAL


def _euc_japanese(text: str, data: bytes) -> bool:
    """Check for Japanese syllable signs, which nearly every text contains."""
    return _share(text, _is_kana) >= 0.2 and _share(text, _IN_EUC_JP) >= _TYPICAL


def _cyrillic(text: str, data: bytes) -> bool:
    """Check for whole words of high bytes, mostly small letters."""
    small = _share(text, lambda char: "а" <= char <= "я")
    letters = _share(text, lambda char: "А" <= char <= "я" or char in "ЁёЄєІіЇїҐґЎў№«»—")
    return len(text) >= _ENOUGH and small >= _DAMAGED and letters >= _TYPICAL and not _is_scattered(data)


def _western(text: str, data: bytes) -> bool:
    """Check for single letters and signs among ASCII. The last letter, byte FF, almost never occurs."""
    return _is_scattered(data) and all((char.isalpha() and char != "ÿ") or char in _WESTERN_SIGNS for char in text)


def _is_scattered(data: bytes) -> bool:
    """Return whether most high bytes stand alone, or in a word with ASCII letters."""
    runs = _RUN.findall(data[:_LARGEST_GUESS])
    return sum(len(run) == 1 or bool(before or after) for before, run, after in runs) > len(runs) / 2


_WESTERN_SIGNS = frozenset("\xa0¡¢£¤¥¦§¨©ª«¬®°±²³´µ¶·¸¹º»¼½¾¿×÷‘’“”„…–—•€™‹›")
_IN_EUC_JP = _first_byte("euc_jp", (0xA1, 0xA5), (0xB0, 0xCF))
_IN_CP932 = _first_byte("cp932", (0x81, 0x83), (0x88, 0x97))
_IN_GB2312 = _first_byte("gb2312", (0xA1, 0xA1), (0xA3, 0xA3), (0xB0, 0xD7))
_IN_BIG5 = _first_byte("big5", (0xA1, 0xC6))

_GUESSES: tuple[tuple[str, Callable[[str, bytes], bool]], ...] = (
    ("euc_kr", _korean),
    ("euc_jp", _euc_japanese),
    ("gb18030", lambda text, data: _share(text, _IN_GB2312) >= _TYPICAL),
    ("cp932", lambda text, data: _share(text, _IN_CP932) >= _TYPICAL),
    ("big5", lambda text, data: _share(text, _IN_BIG5) >= _TYPICAL),
    ("cp1251", _cyrillic),
    ("cp1252", _western),
)
"""Narrow encodings first."""
