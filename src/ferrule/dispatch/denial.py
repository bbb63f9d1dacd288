"""Guess from how a command ended whether the sandbox stopped it; the facts are the reference implementation's."""

from ferrule.tools.effects import CommandResult

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
    "network is unreachable",
    "could not resolve host",
    "temporary failure in name resolution",
)


def is_likely_denied(result: CommandResult) -> bool:
    """Return whether a confined command probably failed because of the sandbox."""
    if not result.exit_code or result.timed_out:
        return False
    transcript = result.transcript.lower()
    return result.exit_code == SIGSYS_EXIT or any(word in transcript for word in _WORDS)
