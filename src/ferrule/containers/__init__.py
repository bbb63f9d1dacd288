"""Containers: a private root with commands, without Docker, root rights or an image. Usable alone; Linux only."""

from ferrule.containers.container import Container
from ferrule.containers.errors import ContainerError, ContainerExpired, UnknownContainer
from ferrule.containers.host import ContainerHost, ContainerInfo, ContainerSettings
from ferrule.containers.local import HostLimits, LocalHost

__all__ = [
    "Container",
    "ContainerError",
    "ContainerExpired",
    "ContainerHost",
    "ContainerInfo",
    "ContainerSettings",
    "HostLimits",
    "LocalHost",
    "UnknownContainer",
]
