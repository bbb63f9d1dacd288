"""`ferrule apply-patch` as a function; prints and returns what the Codex binary's `apply_patch` does."""

from collections.abc import Sequence
from typing import BinaryIO

from ferrule.patch.errors import PatchError
from ferrule.patch.files import FileLayer
from ferrule.patch.writer import apply_patch

DONE, FAILED, WRONG_USAGE = 0, 1, 2
"""Exit codes."""


def main(
    argv: Sequence[str], stdin: BinaryIO, cwd: str, *, files: FileLayer | None = None, program: str = "apply_patch"
) -> tuple[str, str, int]:
    """Apply the patch given as the one argument (`argv` excludes the program's name) or on standard input. Relative
    paths start at `cwd`. Returns the text for standard output, the text for standard error, and the exit code."""
    usage = f"Usage: {program} 'PATCH'\n       echo 'PATCH' | {program}\n"
    if len(argv) > 1:
        return "", f"Error: {program} accepts exactly one argument.\n", WRONG_USAGE
    if argv:
        text = argv[0]
        if not _is_utf8(text):
            return "", f"Error: {program} requires a UTF-8 PATCH argument.\n", FAILED
    else:
        try:
            text = stdin.read().decode()
        except (OSError, UnicodeDecodeError) as error:
            return "", f"Error: Failed to read PATCH from stdin.\n{error}\n", FAILED
        if not text:
            return "", usage, WRONG_USAGE
    try:
        return apply_patch(text, cwd, files), "", DONE
    except PatchError as error:
        return "", f"{error}\n", FAILED


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
