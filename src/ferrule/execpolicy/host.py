"""What the policy needs to know about the machine. The judgements are pure; they ask a `Host`."""

from typing import Protocol


class Host(Protocol):
    """Facts about the machine and the working directory that a command would run in."""

    def git_is_inert(self) -> bool:
        """True if a read-only git command here would start no program that a configuration names."""
        ...

    def resolve(self, program: str) -> str | None:
        """The real path of the file that would be executed for this word; None if there is none or it is unknown."""
        ...

    def is_exposed(self, program: str) -> bool:
        """True if a command could have put there what would be executed for this word."""
        ...


class UnknownHost:
    """Nothing is known, so git is never safe and no link is followed."""

    def git_is_inert(self) -> bool:
        return False

    def resolve(self, program: str) -> str | None:
        return None

    def is_exposed(self, program: str) -> bool:
        return False
