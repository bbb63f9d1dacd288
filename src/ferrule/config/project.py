"""The single list of a project's files that decide or run something in a later session.

Three parts use it. *Readers* (`load.py`) read nothing of a project that is not in it. *Trust* (`trust.py`) records
which of its files the user has confirmed, by content. *Protection* (`sandbox/`, `dispatch/approval.py`) keeps
`PROTECTED_AT_TOP` from commands and patches.

AGENTS.md is not configuration: it is text for the model, which reads the repository anyway, grants no rights, and is
often what the model is asked to write. So it is neither recorded nor protected. A skill is text, too, but its
description makes the model act without being asked: it is confirmed.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from ferrule.protocol.settings import HookPrograms
from ferrule.reading import Unreadable, names_inside, read_inside
from ferrule.skills import SkillFile, skill_files

PROJECT_FOLDER = ".ferrule"

Kind = Literal["settings", "servers", "rules", "program", "skill"]


class OneFile(msgspec.Struct, frozen=True):
    """The file at `path`, which is relative to the project's top."""

    kind: Kind
    path: str


class FilesIn(msgspec.Struct, frozen=True):
    """The files in the folder `path` whose names end with `suffix`; with `deep` also those in subfolders."""

    kind: Kind
    path: str
    suffix: str = ""
    deep: bool = False


class SkillsIn(msgspec.Struct, frozen=True):
    """The `SKILL.md` of each skill in the folder `path`. What else a skill brings the model reads by its tools."""

    path: str


PROGRAMS = FilesIn("program", f"{PROJECT_FOLDER}/hooks", deep=True)
"""The programs that a project's hooks start."""
PROJECT_FILES: tuple[OneFile | FilesIn | SkillsIn, ...] = (
    OneFile("servers", ".mcp.json"),
    OneFile("settings", f"{PROJECT_FOLDER}/config.toml"),
    FilesIn("rules", f"{PROJECT_FOLDER}/rules", ".rules"),
    PROGRAMS,
    SkillsIn(f"{PROJECT_FOLDER}/skills"),
    SkillsIn(".agents/skills"),
)
"""In reading order: later ones win."""

PROTECTED_AT_TOP = (PROJECT_FOLDER, ".codex", ".agents", ".mcp.json")
"""Names at the top of a writable root that commands and patches cannot write where they exist.

They cover all of `PROJECT_FILES`, and what other agents read in the same way (`.codex`, `.agents`). Each may be a file
or a folder. If one was missing and a command creates it, it is new, and new files are not read before the user has
confirmed them. `.git` is not among them, because a repository is protected by what it is, not by its name.
"""

MAX_BYTES: dict[Kind, int] = {"settings": 256 << 10, "servers": 256 << 10, "rules": 256 << 10, "program": 4 << 20}
"""Size limits per file: thousands of lines of handwritten text; a program may be compiled. Skills have their own."""
MAX_FILES = 200
"""Files in one folder of the list: more than a project has rules or hooks, and read at every start."""
MAX_DEPTH = 8
"""Nesting of folders in `hooks/`."""


class ProjectFile(msgspec.Struct, frozen=True):
    """A file of the list, read only once, so that what is confirmed is what is used."""

    kind: Kind
    path: str
    data: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()


class Problem(msgspec.Struct, frozen=True):
    """An unreadable file or folder of the list; `text` continues the sentence after its path."""

    path: str
    text: str


class Found(msgspec.Struct, frozen=True):
    """The project's files and folders of the list."""

    files: tuple[ProjectFile, ...] = ()
    problems: tuple[Problem, ...] = ()


def find_files(top: str) -> Found:
    """Read every file of the list in the project at `top`. Never blocks, and never leaves the project."""
    return _sorted_out(each for entry in PROJECT_FILES for each in _found(top, entry))


def programs_of(files: Iterable[ProjectFile]) -> dict[str, str]:
    """Return the digests of the programs that hooks may start, by path."""
    return {file.path: file.digest for file in files if file.kind == "program"}


def changed_program(programs: HookPrograms) -> str | None:
    """Return the path of a program that differs from its confirmed state, or is new or gone; None if all match.
    Blocking."""
    found = _sorted_out(_found(programs.top, PROGRAMS))
    here = {**programs_of(found.files), **{problem.path: "" for problem in found.problems}}
    odd = (path for path in {**programs.digests, **here} if programs.digests.get(path) != here.get(path))
    return next(odd, None)


def is_program(path: str) -> bool:
    """Return whether the project's hooks may start the file at this path."""
    return path == PROGRAMS.path or path.startswith(f"{PROGRAMS.path}/")


def _sorted_out(found: Iterable[ProjectFile | Problem]) -> Found:
    every = list(found)
    return Found(
        tuple(each for each in every if isinstance(each, ProjectFile)),
        tuple(each for each in every if isinstance(each, Problem)),
    )


def _found(top: str, entry: OneFile | FilesIn | SkillsIn) -> Iterator[ProjectFile | Problem]:
    if isinstance(entry, SkillsIn):
        for one in skill_files(top, entry.path):
            if isinstance(one, SkillFile):
                yield ProjectFile("skill", one.path, one.data)
            else:
                yield Problem(one.path, one.text)
        return
    try:
        paths = [entry.path] if isinstance(entry, OneFile) else _names(top, entry, entry.path, MAX_DEPTH)
    except FileNotFoundError:
        return
    except Unreadable as problem:
        yield Problem(entry.path, str(problem))
        return
    for path in paths:
        try:
            yield ProjectFile(entry.kind, path, read_inside(top, path, MAX_BYTES[entry.kind]))
        except FileNotFoundError:
            continue
        except Unreadable as problem:
            yield Problem(path, str(problem))


def _names(top: str, entry: FilesIn, folder: str, depth: int) -> list[str]:
    found: list[str] = []
    for name, is_folder in names_inside(top, folder, MAX_FILES):
        path = os.path.join(folder, name)
        if is_folder and entry.deep and depth == 0:
            raise Unreadable(f"has folders more than {MAX_DEPTH} deep")
        if is_folder and entry.deep:
            found += _names(top, entry, path, depth - 1)
        elif not is_folder and name.endswith(entry.suffix):
            found.append(path)
        if len(found) > MAX_FILES:
            raise Unreadable(f"holds more than {MAX_FILES} files")
    return found
