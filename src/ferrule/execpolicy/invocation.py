"""Get the script that a command hands to a shell, and write a command as people do."""

import shlex
from collections.abc import Sequence

from ferrule.execpolicy.expansions import Vague
from ferrule.execpolicy.programs import base_name, is_trusted

SHELLS = frozenset(["bash", "sh", "zsh", "dash", "ksh", "ash"])
_RUN = frozenset(["-c", "-lc", "-fc"])  # -f keeps zsh from reading ~/.zshenv: how our own tools call it


def shell_script(argv: Sequence[str]) -> str | None:
    """Return the script of exactly `[bash, -c | -lc | -fc, script]`, with a shell in a trusted place."""
    if len(argv) == 3 and argv[1] in _RUN and base_name(argv[0]) in SHELLS and is_trusted(argv[0]):
        return None if isinstance(argv[2], Vague) else argv[2]
    return None


def command_text(argv: Sequence[str]) -> str:
    """Return a command as people write it: a shell's script, or else the quoted words. A shell that is not in a trusted
    place is shown as well, as it may be any program."""
    script = shell_script(argv)
    return shlex.join(argv) if script is None else script
