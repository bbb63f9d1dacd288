"""The V4A patch engine: text in, plan out, all or nothing on disk. Usable alone.

    from ferrule.patch import PlainFiles, apply, parse, plan

    files = PlainFiles()
    planned = plan(parse(text), files, cwd="/home/me/project")   # complete, in memory, nothing changed yet
    apply(planned, files)
    print(planned.summary())

`apply_patch(text, cwd)` does the three. Every failure is a `PatchError` whose text is written for the model.
"""

from ferrule.patch.errors import MAX_MESSAGE, ApplyError, MatchError, ParseError, PatchError
from ferrule.patch.files import Entry, FileLayer, Kind, PlainFiles
from ferrule.patch.grammar import FORMAT_DESCRIPTION, GRAMMAR
from ferrule.patch.parser import FileProgress, PatchParser, parse
from ferrule.patch.planner import Operation, OperationKind, Place, Plan, plan
from ferrule.patch.syntax import AddFile, Chunk, DeleteFile, Hunk, Patch, UpdateFile
from ferrule.patch.writer import apply, apply_patch

__all__ = [
    "FORMAT_DESCRIPTION",
    "GRAMMAR",
    "MAX_MESSAGE",
    "AddFile",
    "ApplyError",
    "Chunk",
    "DeleteFile",
    "Entry",
    "FileLayer",
    "FileProgress",
    "Hunk",
    "Kind",
    "MatchError",
    "Operation",
    "OperationKind",
    "ParseError",
    "Patch",
    "PatchError",
    "PatchParser",
    "Place",
    "PlainFiles",
    "Plan",
    "UpdateFile",
    "apply",
    "apply_patch",
    "parse",
    "plan",
]
