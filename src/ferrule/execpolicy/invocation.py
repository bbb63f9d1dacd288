"""The script that a command hands to a shell, and a command as a person writes it."""

import shlex
from collections.abc import Sequence

from ferrule.execpolicy.expansions import Vague
from ferrule.execpolicy.programs import base_name, is_trusted

SHELLS = frozenset(["bash", "sh", "zsh", "dash", "ksh", "ash"])
_RUN = frozenset(["-c", "-lc", "-fc"])  # -f keeps zsh from reading ~/.zshenv: how our own tools call it


def shell_script(argv: Sequence[str]) -> str | None:
    """The script of `[bash, -c | -lc | -fc, script]` in exactly this form, whose shell is in a trusted place."""
    if len(argv) == 3 and argv[1] in _RUN and base_name(argv[0]) in SHELLS and is_trusted(argv[0]):
        return None if isinstance(argv[2], Vague) else argv[2]
    return None


def command_text(argv: Sequence[str]) -> str:
    """A command as a person writes it: the script of a shell, else the quoted words, among them a shell that is not
    in a trusted place: it may be any program."""
    script = shell_script(argv)
    return shlex.join(argv) if script is None else script
