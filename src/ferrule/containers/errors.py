"""Errors of containers."""

from ferrule.process.launcher import LaunchError


class ContainerError(LaunchError):
    """A container cannot be made or used; the text says what to do."""


class UnknownContainer(ContainerError):
    """There is no container of this id."""


class ContainerExpired(ContainerError):
    """The container has ended for good, and its files are gone."""
