"""Errors of a screen."""

from ferrule.containers.errors import ContainerError
from ferrule.protocol.errors import FerruleError


class ScreenError(ContainerError):
    """There can be no browser, or it does not work; the text says what to do."""


class BrowserLost(ScreenError):
    """The browser has ended."""


class BadAction(FerruleError):
    """An action that nobody can do: one sentence for the model."""


class BadAddress(FerruleError):
    """An address that is not opened: one sentence for the model."""
