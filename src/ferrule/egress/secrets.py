"""Secrets of domains: programs know a placeholder, their domain gets the value, and answers are told with placeholders.

A value is in memory only, and in no text that this module gives out: not in `repr`, errors or logs.
"""

import base64
import binascii
import re
import secrets as randomness
import string
from collections.abc import Iterable, Mapping, Sequence

from ferrule.egress.names import DomainNames
from ferrule.protocol.errors import FerruleError

MAX_VALUE = 8192
"""Characters: servers take no longer headers."""
MAX_BASIC = 16
"""Basic credentials of one connection that have a secret: all of an answer is searched for each."""
MAX_TRIES = 1000
"""To find a placeholder that nothing else has: one is enough but for values of one or two characters."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
"""What a header can hold as it is."""
_LETTERS = string.ascii_letters + string.digits
_BASIC = b"basic "

Headers = Sequence[tuple[bytes, bytes]]


class BadSecret(FerruleError):
    """A secret that cannot be used: one sentence, without the value. `field` is the part that is wrong."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class Secret:
    """A value for a domain, under a variable's name. Not a record: nothing may write it out. Raises `BadSecret` and
    `BadDomain`."""

    __slots__ = ("_value", "domain", "name")

    def __init__(self, domain: str, name: str, value: str) -> None:
        self.domain = DomainNames.read([domain])
        if not _NAME.fullmatch(name):
            raise BadSecret("the name of a secret is that of an environment variable, such as API_KEY", "name")
        if len(value) > MAX_VALUE or not _VALUE.fullmatch(value):
            raise BadSecret(
                f"the value of {name} cannot stand in a header: that takes 1 to {MAX_VALUE} characters of ASCII, with "
                "no line break and no blank at either end",
                "value",
            )
        self.name = name
        self._value = value

    def __repr__(self) -> str:
        return f"<Secret {self.name} for {self.domain}>"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written out")

    def __len__(self) -> int:
        return len(self._value)

    def same_value(self, other: "Secret") -> bool:
        """Return whether both have one value."""
        return self._value == other._value

    def pair(self, placeholder: str) -> "tuple[bytes, bytes]":
        """Return the placeholder and the value, for the connection to its domain alone."""
        return placeholder.encode(), self._value.encode()


class Secrets:
    """The secrets of one container. Raises `BadSecret` for two values of one name."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._secrets = tuple(secrets)
        self._placeholders: dict[str, str] = {}
        by_name: dict[str, Secret] = {}
        for secret in self._secrets:
            known = by_name.setdefault(secret.name, secret)
            if known is secret:
                self._placeholders[secret.name] = self._new(secret)
            elif not known.same_value(secret):
                raise BadSecret(f"there are two values for {secret.name}", "name")

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __repr__(self) -> str:
        return f"<Secrets {', '.join(self._placeholders) or 'none'}>"

    @property
    def environment(self) -> Mapping[str, str]:
        """The placeholders, by the names of their variables."""
        return self._placeholders

    def exchange(self, host: str, *, reveals: bool = True) -> "Exchange | None":
        """Return what is replaced on connections to a host; None if no secret is for it. Unless it `reveals`, values
        are only hidden."""
        pairs = [secret.pair(self._placeholders[secret.name]) for secret in self._secrets]
        own = [pair for pair, secret in zip(pairs, self._secrets, strict=True) if secret.domain.allows(host)]
        return Exchange(own if reveals else (), pairs) if own else None

    def _new(self, secret: Secret) -> str:
        taken = {one.pair("")[1].decode() for one in self._secrets}.union(self._placeholders.values())
        for _ in range(MAX_TRIES):
            placeholder = "".join(randomness.choice(_LETTERS) for _ in range(len(secret)))
            if placeholder not in taken:
                return placeholder
        raise BadSecret(f"the value of {secret.name} is too short for a placeholder of its own", "value")


class Exchange:
    """Replaces placeholders on the way to a host, and values on the way back. `own` are those for this host."""

    def __init__(self, own: Sequence[tuple[bytes, bytes]], known: Sequence[tuple[bytes, bytes]]) -> None:
        self._own = own
        self._known = sorted(set(known), key=lambda pair: -len(pair[1]))
        self._room = MAX_BASIC

    def __repr__(self) -> str:
        return "<Exchange>"

    def reveal(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return a request's headers with the values in place of their placeholders, inside basic credentials, too.
        Raises `BadSecret` if a connection has too many of those."""
        return [(name, self._revealed(value)) for name, value in headers]

    def _revealed(self, value: bytes) -> bytes:
        if value[: len(_BASIC)].lower() == _BASIC:
            sent = value[len(_BASIC) :].strip()
            try:
                plain = base64.b64decode(sent, validate=True)
            except binascii.Error:
                return self._replaced(value)
            if (filled := self._replaced(plain)) != plain:
                encoded = base64.b64encode(filled)
                if (pair := (sent, encoded)) not in self._known:
                    self._add(pair)
                return value[: len(_BASIC)] + encoded
        return self._replaced(value)

    def _add(self, pair: tuple[bytes, bytes]) -> None:
        """Let basic credentials be hidden in answers, too."""
        self._room -= 1
        if self._room < 0:
            raise BadSecret(
                f"A connection sends at most {MAX_BASIC} basic credentials with a secret: open another", "value"
            )
        self._known = [pair, *self._known]

    def _replaced(self, text: bytes) -> bytes:
        for placeholder, value in self._own:
            text = text.replace(placeholder, value)
        return text

    def conceal(self, text: bytes) -> bytes:
        """Return a text with the placeholders in place of values: as long as it was."""
        for placeholder, value in self._known:
            text = text.replace(value, placeholder)
        return text

    def concealer(self) -> "Concealer":
        """Return what conceals a text that comes in parts."""
        return Concealer(self._known)


class Concealer:
    """Conceals values in a text that comes in parts, also those that are split. Keeps back only what may begin one."""

    def __init__(self, known: Sequence[tuple[bytes, bytes]]) -> None:
        self._known = known
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is known to be free of values."""
        text = self._kept + data if self._kept else data
        for placeholder, value in self._known:
            if value in text:
                text = text.replace(value, placeholder)
        begun = max((_begun(text, value) for _, value in self._known), default=0)
        self._kept = text[len(text) - begun :]
        return text[: len(text) - begun] if begun else text

    def flush(self) -> bytes:
        """Return the rest, at the end."""
        rest, self._kept = self._kept, b""
        return rest


def _begun(text: bytes, value: bytes) -> int:
    """Return how many bytes at the end of a text are the beginning of a value."""
    at = max(0, len(text) - len(value) + 1)
    while (at := text.find(value[:1], at)) >= 0:
        if value.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0
