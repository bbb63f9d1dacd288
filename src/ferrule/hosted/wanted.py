"""What clients want of a container, as they declare it and as it is stored."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ferrule.containers.host import machine_memory
from ferrule.hosted.skills import ShownSkill, SkillParam
from ferrule.protocol.json_text import JsonObject
from ferrule.protocol.specs import NetworkAllowlist, NetworkPolicy
from ferrule.store import ContainerRecord

MemoryLimit = Literal["1g", "4g", "16g", "64g"]
MEMORY_LIMITS: Mapping[MemoryLimit, int] = {"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}
"""Bytes that the API's names for sizes stand for."""
DEFAULT_MEMORY: MemoryLimit = "1g"
MEMORY_NOTE = " The container has {:.3g} GiB of memory, all of this machine's."


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A client's settings for a container: files that are copied into it, memory, and minutes without use after which
    it ends; None for the server's own. `network` is what it may reach, None for what it may already. `skills` are those
    that it has, `others` are fields that are only shown. As stored it has no secrets, but says whether there are."""

    file_ids: tuple[str, ...] = ()
    memory_limit: MemoryLimit = DEFAULT_MEMORY
    minutes: int | None = None
    network: NetworkPolicy | None = None
    has_secrets: bool = False
    skills: tuple[ShownSkill, ...] = ()
    others: JsonObject = {}


def details_of(record: ContainerRecord) -> Wanted:
    """Return what a container's maker wanted."""
    return msgspec.json.decode(record.details, type=Wanted)


def skills_of(declared: JsonObject) -> tuple[SkillParam, ...]:
    """Return the skills that a tool declares. Their fields were checked when the request was read."""
    return msgspec.convert(declared.get("skills") or (), tuple[SkillParam, ...])


def wanted_of(declared: JsonObject) -> Wanted:
    """Return what a tool declares of its own container. Fields were checked when the request was read."""
    policy = declared.get("network_policy")
    return Wanted(
        file_ids=tuple(declared.get("file_ids") or ()),
        memory_limit=declared.get("memory_limit") or DEFAULT_MEMORY,
        network=policy and msgspec.convert(policy, NetworkPolicy),
    )


def kept_of(wanted: Wanted) -> bytes:
    """Return what is stored: no secrets."""
    policy = wanted.network
    if isinstance(policy, NetworkAllowlist):
        has_secrets = wanted.has_secrets or bool(policy.domain_secrets)
        policy = msgspec.structs.replace(policy, domain_secrets=None)
        wanted = msgspec.structs.replace(wanted, network=policy, has_secrets=has_secrets)
    return msgspec.json.encode(wanted)


def capped_memory(limit: MemoryLimit) -> int | None:
    """Return the bytes of memory that a container gets if they are fewer than asked for; None if they are not."""
    most = machine_memory()
    return most if most < MEMORY_LIMITS[limit] else None


def memory_note(declared: JsonObject | str) -> str:
    """Return what the model has to know of the memory of a declared container: that it is less than was asked for."""
    asked = None if isinstance(declared, str) else declared.get("memory_limit")
    capped = capped_memory(asked) if asked else None
    return "" if capped is None else MEMORY_NOTE.format(capped / (1 << 30))
