"""Commands that are asked about under every policy, and refused if nobody may be asked."""

from collections.abc import Sequence

from ferrule.execpolicy.programs import base_name


def is_dangerous(argv: Sequence[str]) -> bool:
    """Return True for `rm` with a force flag, wherever `rm` lies: it deletes for good, without asking."""
    if not argv or base_name(argv[0]) != "rm":
        return False
    for word in argv[1:]:
        if word == "--":
            return False
        if word.startswith("--"):
            if "--force".startswith(word):  # getopt takes any unambiguous beginning
                return True
        elif word.startswith("-") and "f" in word:
            return True
    return False
