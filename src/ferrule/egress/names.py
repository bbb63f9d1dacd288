"""Names of hosts that may be reached: `example.com`, or `*.example.com` for every name below it.

A name is read by a list of what is good: labels of letters, digits, `-` and `_`. Everything else is refused, so that no
other notation of an address, no part of a URL and no list that allows all gets through.
"""

import re
from collections.abc import Iterable
from typing import Self

import msgspec

from ferrule.protocol.errors import FerruleError

MAX_NAME = 253
"""Characters of a name: the limit of DNS."""
MAX_TEXT = 2 * MAX_NAME
"""Characters that are read at all: IDN leaves out some of them."""
MAX_SHOWN = 10
"""Names that a sentence lists: what a reader takes in."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label of an address: `127.1`, `0x7f000001` and `2130706433` are all read as addresses by programs."""


_LIKE_IPV6 = re.compile(r"\[?[0-9a-f:.]+(%.*)?\]?(:\d+)?", re.IGNORECASE)
"""Has one way to match: a program inside may ask for a name of 64 KiB of colons."""


class BadDomain(FerruleError):
    """A text is not the name of a host: one sentence that says why."""


def read_host(text: str) -> str:
    """Return the name of a host as DNS compares it: in lower case, IDN as A-labels, without the trailing dot. Raises
    `BadDomain`, also for an address in any notation."""
    if len(text) > MAX_TEXT:
        raise BadDomain(f"{_quoted(text)} is too long for a name")
    name = _ascii(text).lower().removesuffix(".")
    labels = name.split(".")
    if len(name) <= MAX_NAME and all(_LABEL.fullmatch(label) for label in labels):
        if not _NUMBER.fullmatch(labels[-1]):
            return name
        raise BadDomain(f"{_quoted(text)} is an address: only names can be allowed")
    raise BadDomain(_fault(text))


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    import idna

    try:
        return idna.encode(text, uts46=True).decode()
    except idna.IDNAError as error:
        raise BadDomain(f"{_quoted(text)} is not a domain: {error}") from error


def _fault(text: str) -> str:
    """Say what a text is that is no name."""
    shown = _quoted(text)
    if text == "*":
        return "'*' would allow every domain: name each, or '*.example.com' for those below one"
    if not text:
        return "a domain is empty"
    if "://" in text or "/" in text:
        return f"{shown} is a URL: only the name of its host is wanted"
    if "@" in text:
        return f"{shown} has a user name: only the name of the host is wanted"
    if text.count(":") > 1 and _LIKE_IPV6.fullmatch(text):
        return f"{shown} is an address: only names can be allowed"
    if ":" in text:
        return f"{shown} has a port: only the name of the host is wanted"
    if "*" in text:
        return f"{shown} is not a domain: '*' stands only for the first label, as in '*.example.com'"
    return f"{shown} is not a domain"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}...")


class DomainNames(msgspec.Struct, frozen=True):
    """Names that are allowed. An entry `*.example.com` allows each name below `example.com`, not this name itself."""

    entries: tuple[str, ...]

    @classmethod
    def read(cls, texts: Iterable[str]) -> Self:
        """Read a list of domains. Raises `BadDomain` for the first that is none."""
        return cls(tuple(dict.fromkeys(map(_entry, texts))))

    @classmethod
    def listed(cls, texts: Iterable[str]) -> Self:
        """Read a list that somebody wrote to allow what is in it. Raises `BadDomain`, also where nothing is in it."""
        names = cls.read(texts)
        if not names.entries:
            raise BadDomain("an empty list allows no domain: name some")
        return names

    def allows(self, host: str) -> bool:
        """Return whether a name, as `read_host` returns it, is allowed."""
        return self.covers(host)

    def outside(self, bounds: "DomainNames") -> str | None:
        """Return the first entry that `bounds` does not allow; None if it allows all."""
        return next((entry for entry in self.entries if not bounds.covers(entry)), None)

    def covers(self, entry: str) -> bool:
        """Return whether everything is allowed that an entry allows."""
        above = _parents(entry.removeprefix("*."))
        return entry in self.entries or any(f"*.{parent}" in self.entries for parent in above)

    @property
    def exact(self) -> tuple[str, ...]:
        """The entries that are names."""
        return tuple(entry for entry in self.entries if not entry.startswith("*."))

    def __str__(self) -> str:
        shown = ", ".join(self.entries[:MAX_SHOWN]) or "none"
        more = len(self.entries) - MAX_SHOWN
        return f"{shown} and {more} more" if more > 0 else shown


def _entry(text: str) -> str:
    rest = text.removeprefix("*.")
    if rest == text:
        return read_host(text)
    try:
        return f"*.{read_host(rest)}"
    except BadDomain as error:
        raise BadDomain(_fault(text)) from error


def _parents(host: str) -> Iterable[str]:
    """Yield the names above a name."""
    while "." in host:
        host = host.partition(".")[2]
        yield host
