"""Facts about the machine. Decisions are pure and ask a `Host` for them."""

from typing import Protocol


class Host(Protocol):
    """Facts about the machine and the working directory that a command would run in."""

    def git_is_inert(self) -> bool:
        """Return True if a read-only git command would start no program that a configuration names."""
        ...

    def resolve(self, program: str) -> str | None:
        """Return the real path of the file that this word would execute; None if there is none or it is unknown."""
        ...

    def is_exposed(self, program: str) -> bool:
        """Return True if a command could have put the file there that this word would execute."""
        ...


class UnknownHost:
    """Knows nothing, so git is never safe and no link is followed."""

    def git_is_inert(self) -> bool:
        return False

    def resolve(self, program: str) -> str | None:
        return None

    def is_exposed(self, program: str) -> bool:
        return False
