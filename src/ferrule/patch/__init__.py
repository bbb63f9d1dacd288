"""The V4A patch engine: text in, plan out, all or nothing on disk. Usable alone.

    from ferrule.patch import PlainFiles, apply, parse, plan

    files = PlainFiles()
    planned = plan(parse(text), files, cwd="/home/me/project")   # complete, in memory, nothing changed yet
    apply(planned, files)
    print(planned.summary())

`apply_patch(text, cwd)` does the three. Every failure is a `PatchError` whose text is written for the model.

Names are imported on first use: a session that patches nothing needs only `files`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOMES = {
    "FORMAT_DESCRIPTION": "grammar", "GRAMMAR": "grammar", "MAX_MESSAGE": "errors", "AddFile": "syntax",
    "ApplyError": "errors", "Chunk": "syntax", "DeleteFile": "syntax", "Entry": "files", "FileLayer": "files",
    "FileProgress": "parser", "Hunk": "syntax", "Kind": "files", "MatchError": "errors", "Operation": "planner",
    "OperationKind": "planner", "ParseError": "errors", "Patch": "syntax", "PatchError": "errors",
    "PatchParser": "parser", "Place": "planner", "PlainFiles": "files", "Plan": "planner", "UpdateFile": "syntax",
    "apply": "writer", "apply_patch": "writer", "parse": "parser", "plan": "planner",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
