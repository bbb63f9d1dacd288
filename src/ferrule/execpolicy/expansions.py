"""Words whose text only the shell knows: their kinds, and what is certain about them all the same."""

import re

_EXPANDED = re.compile(r"[$`({<>*?\[~]")
_NUMBER = re.compile(r"\$[$?#]|\$\{#\w+(\[[@*]\])?\}")
_UNFIXED = frozenset(["", "$", "`", "-", "+", "<", "("])  # how a vague word begins that may be anything


class Vague(str):
    """A word that only the shell knows. Its text has the expansions as they are in the script."""

    __slots__ = ()


class Splitting(Vague):
    """A vague word that may become none or several."""

    __slots__ = ()


class Braces(Splitting):
    """A word whose braces expand to several known words."""

    __slots__ = ("expanded",)

    def __new__(cls, text: str, expanded: tuple[str, ...]) -> "Braces":
        made = super().__new__(cls, text)
        made.expanded = expanded
        return made

    expanded: tuple[str, ...]


class Glob(str):
    """A word with an unquoted glob: it stays as it is, or becomes the names of files that match."""

    __slots__ = ("may_be_option",)

    def __new__(cls, text: str, at: int = 0) -> "Glob":
        made = super().__new__(cls, text)
        fixed = text[:at]
        # Unless what stands before the glob decides what its expansions are: `src/*`, `--include=*.py`.
        made.may_be_option = at == 0 or (fixed.startswith("-") and "=" not in fixed)
        return made

    may_be_option: bool


def fixed_beginning(word: str) -> str:
    """Return what a vague word begins with, whatever its expansions turn out to be."""
    return _EXPANDED.split(word, maxsplit=1)[0]


def is_number(word: str) -> bool:
    """Return True for a word that expands to a number: `$$`, `$?`, `${#x}`."""
    return _NUMBER.fullmatch(word) is not None


def may_be_option(word: str) -> bool:
    """Return True for a vague word that may be an option, nothing, or several words."""
    return isinstance(word, Splitting) or may_begin_an_option(word)


def may_begin_an_option(word: str) -> bool:
    return isinstance(word, Vague) and word[:1] in _UNFIXED and not is_number(word)
