"""Keep secrets out of what people and programs read: texts, URLs, and the logs of the HTTP libraries."""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit
from weakref import WeakSet

SHORTEST_SECRET = 8
"""A shorter value would hide ordinary words, too."""
HIDDEN = "*****"
_SCHEMES = ("bearer ", "basic ")

_LOGGERS = (
    "httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy", "httpcore2.socks",
    "mcp.client.streamable_http",
)  # fmt: skip
"""Loggers that tell URLs, and the headers of answers. A filter counts for its own logger only, not for those below."""


def any_of(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds any of these secrets, also as a URL or JSON spells it; None if there is none."""
    known = {secret.strip() for secret in secrets}
    spelled = {form for secret in known if len(secret) >= SHORTEST_SECRET for form in _spellings(secret)}
    return re.compile("|".join(map(re.escape, sorted(spelled, key=len, reverse=True)))) if spelled else None


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret.encode(errors="replace"), safe="")
    for ascii_only in (True, False):
        yield json.dumps(secret, ensure_ascii=ascii_only)[1:-1]


def hidden(text: str, secrets: Iterable[str]) -> str:
    """Return the text with `*****` for each of the secrets."""
    pattern = any_of(secrets)
    return text if pattern is None else pattern.sub(HIDDEN, text)


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query, which can hold keys."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def secrets_in_url(url: str) -> Iterator[str]:
    """Yield the password, as it is written and as it is meant, and the values of the query; nothing of other text."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    yield from (parts.password or "", unquote(parts.password or ""))
    yield from (value for _, value in parse_qsl(parts.query))


def secrets_in_headers(values: Iterable[str]) -> Iterator[str]:
    """Yield the values of headers, and the tokens in them."""
    for value in values:
        yield value
        if value.lower().startswith(_SCHEMES):
            yield value.partition(" ")[2]


class Keyed(Protocol):
    """Something that sends secrets."""

    def secrets(self) -> Iterable[str]:
        """Return what it sends and nobody may read."""
        ...


class _Filter(logging.Filter):
    """Hides the secrets of all that is open from the libraries' own records."""

    def __init__(self) -> None:
        super().__init__()
        self.open: WeakSet[Keyed] = WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        text = hidden(said, [secret for keyed in list(self.open) for secret in keyed.secrets()])
        if text != said:
            record.msg, record.args = text, ()
        return True


_filter = _Filter()


def hide_in_logs(keyed: Keyed) -> None:
    """Keep these secrets out of the libraries' logs, as long as the object lives."""
    _filter.open.add(keyed)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_filter)
