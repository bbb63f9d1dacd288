"""Was it the sandbox? A guess from how a command ended; the facts are the reference implementation's."""

from typing import Protocol, runtime_checkable

SIGSYS_EXIT = 128 + 31
"""A process that seccomp killed."""

_WORDS = (
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "seccomp",
    "sandbox",
    "landlock",
    "failed to write file",
)
_NETWORK_WORDS = ("network is unreachable", "could not resolve host", "temporary failure in name resolution")


@runtime_checkable
class CommandResult(Protocol):
    """What an attempt returns of a command. `exit_code` None: it still runs, nothing is judged."""

    @property
    def exit_code(self) -> int | None: ...
    @property
    def transcript(self) -> str: ...
    @property
    def timed_out(self) -> bool: ...


def is_likely_denied(result: CommandResult) -> bool:
    """Whether a confined command probably failed because of the sandbox."""
    if not result.exit_code or result.timed_out:
        return False
    transcript = result.transcript.lower()
    return result.exit_code == SIGSYS_EXIT or any(word in transcript for word in (*_WORDS, *_NETWORK_WORDS))
