"""`ferrule resume`: `ferrule exec resume`, as people type it."""

from ferrule.cli.commands import exec as exec_command


def main(arguments: list[str]) -> int:
    """Go on with a stored session."""
    return exec_command.main(["resume", *arguments])
