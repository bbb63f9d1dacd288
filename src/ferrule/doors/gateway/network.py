"""The network that the requests of clients may reach, as the settings say."""

import os

from ferrule.egress.guard import Guard
from ferrule.egress.names import BadDomain, DomainNames
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import GatewayNetwork


def open_guard(network: GatewayNetwork) -> Guard:
    """Return what says who may be reached. Raises `UsageError`."""
    allowed = network.allowed_domains
    try:
        return Guard(None if allowed is None else DomainNames.read(allowed), hosts=network.hosts)
    except BadDomain as error:
        raise UsageError(f"gateway.network: {error}") from error


def ca_file_of(network: GatewayNetwork) -> str | None:
    """Return the file of further roots. Raises `UsageError` if it cannot be read."""
    if network.ca_file is None:
        return None
    from ferrule.egress.http import client_context

    path = os.path.expanduser(network.ca_file)
    client_context(path)
    return path
