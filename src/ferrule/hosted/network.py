"""What the tools of a server reach outside: the operator's bounds, and what a request asks for within them.

Source: `network_policy` of containers of the Responses API.
"""

import os
from collections.abc import Mapping
from typing import Self

import msgspec

from ferrule.containers import ContainerError
from ferrule.containers.container import ENVIRONMENT
from ferrule.egress.egress import VARIABLES, Egress
from ferrule.egress.guard import Guard
from ferrule.egress.http import client_context
from ferrule.egress.names import BadDomain, DomainNames
from ferrule.egress.secrets import BadSecret, Secret, Secrets
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.settings import GatewayNetwork
from ferrule.protocol.specs import NetworkAllowlist, NetworkDisabled, NetworkPolicy
from ferrule.sandbox.linux.root import HOST_NAME

MAX_DOMAINS = 200
"""Domains of one policy, and secrets: each is looked at for every connection."""
MAX_TOLD = 50
"""Domains that the model is told of: more would be most of what it reads."""


class PolicyRefused(FerruleError):
    """A policy that cannot be: one sentence. `param` is the field of the policy."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = f"network_policy.{param}"


class Reach(msgspec.Struct, frozen=True):
    """What a container may reach, and with which secrets."""

    domains: DomainNames
    secrets: tuple[Secret, ...] = ()

    def same_as(self, other: "Reach") -> bool:
        """Return whether both let out the same."""
        return self.domains == other.domains and same_secrets(self.secrets, other.secrets)


class Network(msgspec.Struct, frozen=True):
    """The operator's network. `bounds` None: any public name."""

    bounds: DomainNames | None = None
    hosts: Mapping[str, str] = {}
    ca_file: str | None = None

    @classmethod
    def of(cls, settings: GatewayNetwork) -> Self:
        """Read the settings. Raises `UsageError`."""
        domains = settings.allowed_domains
        try:
            ca_file = None if settings.ca_file is None else os.path.expanduser(settings.ca_file)
            made = cls(None if domains is None else DomainNames.read(domains), settings.hosts, ca_file)
            made.guard()
        except BadDomain as error:
            raise UsageError(f"gateway.network: {error}") from error
        if made.ca_file is not None:
            client_context(made.ca_file)
        return made

    def guard(self, allowed: DomainNames | None = None) -> Guard:
        """Return who says what may be reached: these names, or all that the operator allows."""
        return Guard(self.bounds if allowed is None else allowed, hosts=self.hosts)

    def reach(self, policy: NetworkPolicy | None) -> Reach | None:
        """Read what a request asks for; None if that is no network. Raises `PolicyRefused`."""
        if policy is None or isinstance(policy, NetworkDisabled):
            return None
        domains = self._domains(policy)
        secrets = tuple(_secret(policy, number) for number in range(len(policy.domain_secrets or ())))
        try:
            Secrets(secrets)
        except BadSecret as error:
            raise PolicyRefused(str(error), "domain_secrets") from error
        return Reach(domains, secrets)

    def still(self, policy: NetworkPolicy | None) -> Reach | None:
        """Return what the operator still allows of a policy that was stored; None if that is nothing."""
        if not isinstance(policy, NetworkAllowlist):
            return None
        entries = DomainNames.read(policy.allowed_domains).entries
        left = tuple(entry for entry in entries if self.bounds is None or self.bounds.covers(entry))
        return Reach(DomainNames(left)) if left else None

    def way_out(self, reach: Reach) -> Egress:
        """Open the way out of one container. Raises `ContainerError`."""
        try:
            guard = self.guard(reach.domains)
            return Egress(guard, reach.secrets, ca_file=self.ca_file, host_name=HOST_NAME)
        except UsageError as error:
            raise ContainerError(str(error)) from error

    def _domains(self, policy: NetworkAllowlist) -> DomainNames:
        if not policy.allowed_domains:
            raise PolicyRefused("an allowlist needs a domain; for no network say 'disabled'", "allowed_domains")
        if len(policy.allowed_domains) > MAX_DOMAINS:
            raise PolicyRefused(f"there are more than {MAX_DOMAINS}", "allowed_domains")
        try:
            domains = DomainNames.read(policy.allowed_domains)
        except BadDomain as error:
            raise PolicyRefused(str(error), "allowed_domains") from error
        if self.bounds is not None and (entry := domains.outside(self.bounds)) is not None:
            raise PolicyRefused(f"this server does not allow {entry}", "allowed_domains")
        return domains


def _secret(policy: NetworkAllowlist, number: int) -> Secret:
    assert policy.domain_secrets is not None
    if number >= MAX_DOMAINS:
        raise PolicyRefused(f"there are more than {MAX_DOMAINS}", "domain_secrets")
    given = policy.domain_secrets[number]
    try:
        secret = Secret(given.domain, given.name, given.value)
    except (BadDomain, BadSecret) as error:
        raise PolicyRefused(str(error), "domain_secrets") from error
    if secret.name in VARIABLES or secret.name in ENVIRONMENT:
        raise PolicyRefused(f"{secret.name} is a variable that the container has already", "domain_secrets")
    return secret


def same_secrets(one: tuple[Secret, ...], other: tuple[Secret, ...]) -> bool:
    """Return whether both are the same secrets."""
    return len(one) == len(other) and all(
        (a.name, a.domain) == (b.name, b.domain) and a.same_value(b) for a, b in zip(one, other, strict=True)
    )


NO_NETWORK = "There is no network."
OPEN = "The network has only these domains: {}. HTTP and HTTPS work, by proxy or by name."
SECRET = (
    "The variable {} stands for a secret of {}: it becomes the real one in headers of HTTPS requests to that domain."
)


def network_note(policy: NetworkPolicy | None) -> str:
    """Return what the model is told of a container's network."""
    if not isinstance(policy, NetworkAllowlist):
        return NO_NETWORK
    secrets = policy.domain_secrets or ()
    told = (SECRET.format(one.name, one.domain) for one in secrets[:MAX_TOLD])
    return " ".join([OPEN.format(", ".join(policy.allowed_domains[:MAX_TOLD])), *told])


_SECRETS = "domain_secrets"


def without_values(given: JsonObject) -> JsonObject:
    """Return a part of a request without the values of secrets, wherever it has some: also where nobody reads them,
    such as in a tool choice. What is stored and shown holds none."""
    text = msgspec.json.encode(given)
    if _SECRETS.encode() not in text:
        return given
    copy: JsonObject = msgspec.json.decode(text)
    left: list[JsonValue] = [copy]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if isinstance(secrets := part.get(_SECRETS), list):
                part[_SECRETS] = [_unvalued(secret) for secret in secrets]
            left += part.values()
        elif isinstance(part, list):
            left += part
    return copy


def _unvalued(secret: JsonValue) -> JsonValue:
    if not isinstance(secret, dict):
        return None
    return {name: secret[name] for name in ("domain", "name") if isinstance(secret.get(name), str)}
