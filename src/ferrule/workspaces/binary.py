"""Binary patches of git, for contents that are no text in UTF-8 (`emit_binary_diff` in git's diff.c).

    GIT binary patch
    literal SIZE        the new content, then the old one the same way
    zLINE...            deflated; 52 bytes a line in base 85, after a letter that tells how many

A and after it stand for 1 to 26 bytes, a and after it for 27 to 52.
"""

import re
import zlib
from base64 import b85encode

LINE_BYTES = 52
_HUNKS = re.compile(rb"^(?=--- )", re.MULTILINE)
"""Where the head of a file's patch ends."""


def binary_patch(patch: bytes, old: bytes, new: bytes) -> bytes:
    """Return the patch of one file, given with its contents, as a binary one."""
    head = _HUNKS.split(patch, maxsplit=1)[0]
    return b"%bGIT binary patch\n%b\n%b\n" % (head, _literal(new), _literal(old))


def _literal(content: bytes) -> bytes:
    packed = zlib.compress(content)
    lines = (packed[at : at + LINE_BYTES] for at in range(0, len(packed), LINE_BYTES))
    return b"literal %d\n%b" % (len(content), b"".join(map(_line, lines)))


def _line(piece: bytes) -> bytes:
    size = len(piece)
    letter = b"%c" % (size + ord("A") - 1 if size <= 26 else size - 26 + ord("a") - 1)
    return letter + b85encode(piece, pad=True) + b"\n"
