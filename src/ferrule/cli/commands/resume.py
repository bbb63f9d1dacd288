"""`ferrule resume`: `exec resume`, as people type it; without a prompt, the session in the terminal interface."""

import sys

from ferrule.cli.commands import exec as exec_command
from ferrule.cli.commands import terminal


def main(arguments: list[str]) -> int:
    """Go on with a stored session."""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        code = terminal.resume(arguments)
        if code is not None:
            return code
    return exec_command.main(["resume", *arguments])
