"""The parsed form of a V4A patch, before any file is read.

The records of this package are named tuples: they cost an eighth of a frozen dataclass at import, and `import
ferrule.patch` stays below 15 ms.
"""

from typing import NamedTuple

BEGIN = "*** Begin Patch"
END = "*** End Patch"
ADD = "*** Add File: "
DELETE = "*** Delete File: "
UPDATE = "*** Update File: "
MOVE = "*** Move to: "
END_OF_FILE = "*** End of File"
ENVIRONMENT = "*** Environment ID:"
ANCHOR = "@@"


class Chunk(NamedTuple):
    """One `@@` section. `lines` keep their sign (` `, `-` or `+`) and no line end; `anchors` nest, outermost first;
    `line` is the 1-based line of the patch where it starts."""

    anchors: tuple[str, ...]
    lines: tuple[str, ...]
    at_end: bool
    line: int


class AddFile(NamedTuple):
    """`*** Add File`: `lines` without their `+`."""

    path: str
    lines: tuple[str, ...]
    line: int


class DeleteFile(NamedTuple):
    """`*** Delete File`."""

    path: str
    line: int


class UpdateFile(NamedTuple):
    """`*** Update File`, with at least one chunk or a `move_to`."""

    path: str
    move_to: str | None
    chunks: tuple[Chunk, ...]
    line: int


Hunk = AddFile | DeleteFile | UpdateFile


class Patch(NamedTuple):
    """A whole patch. `environment`: the value of the optional `*** Environment ID: ` line."""

    hunks: tuple[Hunk, ...]
    environment: str | None = None
