"""Addresses of the public internet, and the table of hosts that stand for exactly one address."""

import ipaddress
import re
import socket
from collections.abc import Mapping

import msgspec

from ferrule.egress.names import BadDomain, read_host

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC_4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
            "203.0.113.0/24", "224.0.0.0/3",
        ),
    )
)  # fmt: skip
"""IANA's registry of special addresses, multicast and reserved ones; 168.63.129.16 is a cloud's own service for its
machines. Not `is_global`: its answers differ between versions of Python."""
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""All that IANA has given out for the public internet."""
_NOT_PUBLIC_6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
"""Teredo, 6to4 and other tunnels, which lead to any IPv4 address, and addresses of documentation."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 addresses as networks without IPv4 name them."""


class Target(msgspec.Struct, frozen=True):
    """An address and a port to connect to."""

    address: str
    port: int


def read_address(text: str) -> str | None:
    """Return an address as a URL writes it (`127.0.0.1`, `[::1]`) without brackets; None for anything else."""
    inner = text.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(inner)
    except ValueError:
        return None
    return str(address) if (address.version == 6) == (text != inner) else None


def is_address(text: str) -> bool:
    """Return whether a text is an address, without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def spellings(text: str) -> tuple[str, ...]:
    """Return how a rule may write where an address leads on this machine: without the notation of IPv4 within IPv6, and
    as `localhost` where it is this machine itself."""
    address = ipaddress.ip_address(text)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return (str(address), "127.0.0.1", "localhost")
    return (str(address),)


def is_public(text: str) -> bool:
    """Return whether an address belongs to the public internet. Texts that are no addresses do not."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
    return (
        address.scope_id is None and address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
    )


def is_own(text: str) -> bool:
    """Return whether a public address is this machine's. What listens there may be closed to everybody else, by a
    firewall that does not stand between this machine and itself. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in text else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((text, 443))
            return ipaddress.ip_address(probe.getsockname()[0]) == ipaddress.ip_address(text)
    except (OSError, ValueError):  # there is no way to it at all
        return False


Hosts = Mapping[tuple[str, int], Target]


def read_hosts(table: Mapping[str, str]) -> Hosts:
    """Read a table of `"name:port": "address:port"`. Raises `BadDomain`."""
    return dict(map(_row, table.items()))


def _row(row: tuple[str, str]) -> tuple[tuple[str, int], Target]:
    name, port = _split(row[0], "name:port")
    address, to = _split(row[1], "address:port")
    try:
        found = ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise BadDomain(f"hosts: {row[1]!r} is not of the form 'address:port', as in '127.0.0.1:8080'") from error
    return (read_host(name), port), Target(str(found), to)


def _split(text: str, form: str) -> tuple[str, int]:
    name, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise BadDomain(f"hosts: {text!r} is not of the form '{form}'")
    return name, int(port)
