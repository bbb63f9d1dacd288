"""`ferrule apply-patch`: the patch engine alone."""

import os
import sys

from ferrule.patch.command import main as apply_patch


def main(arguments: list[str]) -> int:
    """Apply the patch in the current directory, all or nothing."""
    if arguments in (["-h"], ["--help"]):
        print("usage: ferrule apply-patch [PATCH]\n\nApply a patch, given or on standard input, in this directory.")
        return 0
    output, error, code = apply_patch(arguments, sys.stdin.buffer, os.getcwd(), program="ferrule apply-patch")
    sys.stdout.write(output)
    sys.stderr.write(error)
    return code
