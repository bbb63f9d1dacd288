"""The errors of the store: it cannot keep something, or what was asked for cannot be."""

from ferrule.protocol.errors import FerruleError


class StoreError(FerruleError):
    """The database or its folder cannot be used; one sentence for the one who runs the gateway."""


class StoreFull(StoreError):
    """The disk is full. Nothing was written; it works again as soon as there is space."""


class StoreInUse(StoreError):
    """Another process has the store open."""


class StoreRefusal(FerruleError):
    """The request cannot be met as it is; one sentence for the client. `param` is the argument that is wrong."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class TooLarge(StoreRefusal):
    """A file or a part of an upload is larger than it may be."""


class NoSuchFile(StoreRefusal):
    """A file that is named does not exist, or belongs to somebody else."""
