"""Addresses of web pages, read by what is good: http or https, a host, no user name, no character that programs read
in different ways."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Self
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from ferrule.egress.names import BadDomain, DomainNames, read_host
from ferrule.protocol.errors import FerruleError

MAX_URL = 4096
"""Characters of an address: what browsers and servers take in practice is less."""
MAX_SHOWN = 200
_BAD = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_SAFE = "/?:@!$&'()*+,;=~-._%"
PORTS = {"http": 80, "https": 443}


class BadUrl(FerruleError):
    """A text is not the address of a web page: one sentence that says why."""


class WebUrl(msgspec.Struct, frozen=True):
    """The address of a page, written so that every program reads the same in it."""

    text: str
    host: str
    port: int

    def joined(self, reference: str) -> "WebUrl":
        """Return where a reference of this page leads. Raises `BadUrl`."""
        try:
            return read_url(urljoin(self.text, reference.strip()))
        except ValueError as error:
            raise BadUrl(f"{_shown(reference)} is not an address of a web page") from error


def read_url(text: str) -> WebUrl:
    """Read an address. Raises `BadUrl`."""
    text = text.strip()
    if len(text) > MAX_URL:
        raise BadUrl(f"an address has at most {MAX_URL} characters")
    if _BAD.search(text):
        raise BadUrl(f"{_shown(text)} has a blank, a backslash or a control character")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadUrl(f"{_shown(text)} is not an address of a web page: {error}") from error
    if parts.scheme not in PORTS:
        raise BadUrl(f"{_shown(text)} is not an address of a web page: it has to begin with https:// or http://")
    if "@" in parts.netloc:
        raise BadUrl(f"{_shown(text)} has a user name before its host: such addresses are not opened")
    host = _host(parts.hostname or "", text)
    named = "" if port is None or port == PORTS[parts.scheme] else f":{port}"
    shown = f"[{host}]" if ":" in host else host
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    written = f"{parts.scheme}://{shown}{named}{quote(parts.path, safe=_SAFE) or '/'}{query}"
    return WebUrl(written, host, port or PORTS[parts.scheme])


def _host(host: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return read_host(host)
    except BadDomain as error:
        raise BadUrl(f"{_shown(text)} is not an address of a web page: {error}") from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...")


class SiteFilter(msgspec.Struct, frozen=True):
    """The sites that a search may show and open: each domain with all below it."""

    domains: tuple[str, ...]
    names: DomainNames

    @classmethod
    def read(cls, domains: Iterable[str]) -> Self:
        """Read a list of domains. Raises `BadDomain`."""
        given = DomainNames.read(domains)
        below = [f"*.{name}" for name in given.exact]
        return cls(given.entries, DomainNames((*given.entries, *below)))

    def allows(self, url: WebUrl) -> bool:
        """Return whether a page is on one of the sites."""
        return self.names.allows(url.host)
