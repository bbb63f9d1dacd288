"""The hosted form of the tool: one operation with a path of its own, and a diff without headers."""

from typing import Literal

from ferrule.patch.errors import ParseError
from ferrule.patch.parser import parse
from ferrule.patch.syntax import ADD, BEGIN, DELETE, END, UPDATE, Patch

HostedKind = Literal["create_file", "update_file", "delete_file"]

_HEADERS: dict[HostedKind, str] = {"create_file": ADD, "update_file": UPDATE, "delete_file": DELETE}
_LINES_BEFORE = 2
"""Lines before the diff in the text that is parsed: the begin marker and the header."""


def parse_operation(kind: HostedKind, path: str, diff: str = "") -> Patch:
    """Build the patch of an `apply_patch_call` operation: `diff` holds `+` lines for a new file, hunks for an update,
    nothing for a deletion. Lines in errors are counted in the diff. Raises `ParseError`."""
    if not path.strip() or "\n" in path:
        raise ParseError(f"The operation needs a path of one line, got {path!r}")
    try:
        patch = parse(operation_text(kind, path, diff))
    except ParseError as error:
        line = error.line and max(error.line - _LINES_BEFORE, 1)
        raise ParseError(error.detail, line, error.hint) from error
    if len(patch.hunks) != 1:
        raise ParseError(f"The diff for '{path}' holds the header of another file; use one operation for each file")
    return patch


def operation_text(kind: HostedKind, path: str, diff: str = "") -> str:
    """Return the operation as patch text."""
    body = diff.strip("\n")
    return "\n".join((BEGIN, _HEADERS[kind] + path, *([body] if body else []), END))
