"""Commands that are asked about under every policy, and refused where nobody may be asked."""

from collections.abc import Sequence

from ferrule.execpolicy.programs import base_name


def is_dangerous(argv: Sequence[str]) -> bool:
    """True for `rm` with a force flag, wherever it lies: it deletes what the user cannot get back, unasked."""
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
