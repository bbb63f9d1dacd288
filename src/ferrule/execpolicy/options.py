"""Check a program's options against an allow-list, without knowing which word belongs to which option.

Every word that begins with `-` must be listed, even after `--` and where a value is expected. So the check cannot
disagree with the program about options and values; the price is an unneeded question about a file named `-x`.
"""

from collections.abc import Sequence

import msgspec


class Options(msgspec.Struct, frozen=True):
    """The words that a program may be given.

    `short` are letters that may be combined (`-la`); `valued` letters take the rest of the word as their value (`-n5`);
    `long` are whole words with their dashes, also spelled `--name=value`. `numeric` allows `-5`. `operands` is how many
    other words there may be; None: any number.
    """

    short: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    numeric: bool = False
    operands: int | None = None

    def allow(self, words: Sequence[str]) -> bool:
        """True if every word is listed."""
        operands = 0
        for word in words:
            if not word.startswith("-") or len(word) == 1:
                operands += 1
            elif not self._allows_option(word):
                return False
        return self.operands is None or operands <= self.operands

    def _allows_option(self, word: str) -> bool:
        if word == "--" or word.partition("=")[0] in self.long:
            return True
        if word.startswith("--"):
            return False
        if self.numeric and word[1:].isdecimal():
            return True
        for letter in word[1:]:
            if letter in self.valued:
                return True
            if letter not in self.short:
                return False
        return True


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set: the tables of this package are written so."""
    return frozenset(text.split())


def options(
    short: str = "", valued: str = "", long: str = "", *, numeric: bool = False, operands: int | None = None
) -> Options:
    """Return an `Options` whose long names are given as one text, without their dashes."""
    return Options(short, valued, frozenset("--" + name for name in words(long)), numeric, operands)
