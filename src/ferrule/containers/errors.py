"""Errors of containers."""

from ferrule.process.launcher import LaunchError


class ContainerError(LaunchError):
    """A container cannot be made or used; the text says what to do."""


class UnknownContainer(ContainerError):
    """There is no container of this id."""


class ContainerExpired(ContainerError):
    """The container has ended for good, and its files are gone."""


class NoSuchUser(ContainerError):
    """The container has no user of this name."""


class OneUser(ContainerError):
    """The container has one user id only, and that is not the one that was asked for."""
