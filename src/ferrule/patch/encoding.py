"""The encoding of a file: its bytes as text, and back without losing one."""

from typing import NamedTuple

UTF8 = "utf-8"
_TITLES = {
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32-le": "UTF-32LE",
    "utf-32-be": "UTF-32BE",
    "cp932": "Shift-JIS",
    "euc_jp": "EUC-JP",
    "gb18030": "GB18030 (GBK)",
    "big5": "Big5",
    "euc_kr": "EUC-KR",
    "cp1251": "Windows-1251",
    "cp1252": "Windows-1252 (Latin-1)",
}


class Encoding(NamedTuple):
    """A Python codec. `sure` is False for a guess from the bytes alone."""

    codec: str = UTF8
    sure: bool = True

    @property
    def title(self) -> str:
        """Its name for people."""
        return _TITLES.get(self.codec, self.codec.upper())

    @property
    def described(self) -> str:
        """Its name, and whether it is a guess."""
        return self.title if self.sure else f"{self.title}, as far as its bytes tell"

    @property
    def is_utf8(self) -> bool:
        """Whether invalid bytes are kept as surrogate escapes. Unknown encodings are read this way too."""
        return self.codec == UTF8

    def decode(self, data: bytes) -> str:
        """Decode bytes in this encoding."""
        return data.decode(self.codec, "surrogateescape" if self.is_utf8 else "strict")

    def encode(self, text: str) -> bytes:
        """Encode text. Raises `UnicodeEncodeError` for a character that the encoding does not have."""
        return text.encode(self.codec, "surrogateescape" if self.is_utf8 else "strict")


PLAIN = Encoding()


def unwritable(text: str, encoding: Encoding) -> str:
    """Explain why a text cannot be written in a file of this encoding, and what to do."""
    missing = next((char for char in text if not _has(encoding, char)), "")
    return (
        f"it is {encoding.described}, which has no {missing!r} (U+{ord(missing or '?'):04X}). Write it without, or "
        f"convert the file first: iconv -f {encoding.codec} -t utf-8"
    )


def _has(encoding: Encoding, character: str) -> bool:
    try:
        encoding.encode(character)
    except UnicodeEncodeError:
        return False
    return True
