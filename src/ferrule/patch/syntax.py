"""What a V4A patch says: the parsed form, before any file is looked at."""

from dataclasses import dataclass

BEGIN = "*** Begin Patch"
END = "*** End Patch"
ADD = "*** Add File: "
DELETE = "*** Delete File: "
UPDATE = "*** Update File: "
MOVE = "*** Move to: "
END_OF_FILE = "*** End of File"
ENVIRONMENT = "*** Environment ID:"
ANCHOR = "@@"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One `@@` section. `lines` keep their sign (` `, `-` or `+`) and no line end; `anchors` nest, outermost first;
    `line` is the 1-based line of the patch where it starts."""

    anchors: tuple[str, ...]
    lines: tuple[str, ...]
    at_end: bool
    line: int


@dataclass(frozen=True, slots=True)
class AddFile:
    """`*** Add File`: `lines` without their `+`."""

    path: str
    lines: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """`*** Delete File`."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """`*** Update File`, with at least one chunk or a `move_to`."""

    path: str
    move_to: str | None
    chunks: tuple[Chunk, ...]
    line: int


Hunk = AddFile | DeleteFile | UpdateFile


@dataclass(frozen=True, slots=True)
class Patch:
    """A whole patch. `text` is what lay between the markers with them, without a heredoc around; `environment` is the
    value of the optional `*** Environment ID:` line."""

    hunks: tuple[Hunk, ...]
    environment: str | None = None
