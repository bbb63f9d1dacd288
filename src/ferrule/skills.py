"""Skills: folders with a `SKILL.md`, whose head says a name and when the skill is of use.

The format is that of https://agentskills.io. A skill is found in a folder `skills`, at any depth; a folder below one
that is a skill belongs to it. What cannot be used is a `BadSkill` and never an error.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from ferrule.reading import Unreadable, names_inside, read_inside

SKILL_FILE = "SKILL.md"
MAX_BYTES = 256 << 10
"""Of a `SKILL.md`: many times what a model should read of it at once."""
MAX_TOTAL = 16 << 20
"""Bytes of all in one folder `skills`: hundreds of long ones. They are read before anybody has confirmed them."""
MAX_DEPTH = 6
"""Folders between `skills` and a skill, as in Codex."""
MAX_ENTRIES = 2_000
"""Files and folders that are looked at in one folder `skills`, as in Codex: each session does it."""
MAX_NAME, MAX_DESCRIPTION = 64, 1_024
"""Characters, as in the standard."""

Scope = Literal["user", "project"]


class SkillFile(msgspec.Struct, frozen=True):
    """A `SKILL.md` as it was read. `path` is relative to the folder that was searched, or absolute."""

    path: str
    data: bytes


class BadSkill(msgspec.Struct, frozen=True):
    """A skill that is not used. `text` continues the sentence after its path."""

    path: str
    text: str


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A usable skill. `text` is its whole file, `path` the absolute place of it."""

    name: str
    description: str
    scope: Scope
    path: str
    text: str


def skill_files(top: str, folder: str) -> Iterator[SkillFile | BadSkill]:
    """Read every `SKILL.md` in `folder`, which is relative to `top` (a real path). Never waits, never leaves `top`,
    and passes over names that begin with a dot."""
    todo, looked, size = deque([(folder, 0)]), 0, 0
    while todo:
        here, depth = todo.popleft()
        try:
            names = names_inside(top, here, MAX_ENTRIES)
        except FileNotFoundError:
            continue
        except Unreadable as problem:
            yield BadSkill(here, str(problem))
            continue
        for name, is_folder in names:
            looked += 1
            if looked > MAX_ENTRIES:
                yield BadSkill(folder, f"holds more than {MAX_ENTRIES} files and folders; the rest is not looked at")
                return
            path = os.path.join(here, name, SKILL_FILE)
            try:
                if not name.startswith("."):
                    file = SkillFile(path, read_inside(top, path, MAX_BYTES))
                    size += len(file.data)
                    if size > MAX_TOTAL:
                        yield BadSkill(folder, f"holds more than {MAX_TOTAL >> 20} MiB; the rest is not read")
                        return
                    yield file
            except FileNotFoundError:
                if is_folder and depth < MAX_DEPTH:
                    todo.append((os.path.join(here, name), depth + 1))
            except Unreadable as problem:
                yield BadSkill(path, str(problem))


def user_skills(home: str) -> Iterator[Skill | BadSkill]:
    """Read the user's skills: those in Ferrule's `home`, then those in `~/.agents`, which other agents read too."""
    folders = (os.path.join(place, "skills") for place in (home, os.path.expanduser("~/.agents")))
    for top in dict.fromkeys(map(os.path.realpath, folders)):
        for found in skill_files(top, "."):
            whole = msgspec.structs.replace(found, path=os.path.normpath(os.path.join(top, found.path)))
            yield read_skill(whole, "user") if isinstance(whole, SkillFile) else whole


def read_skill(file: SkillFile, scope: Scope) -> Skill | BadSkill:
    """Read the head of a `SKILL.md`."""
    from ferrule.front_matter import front_matter  # a start without skills does not need it

    text = file.data.decode(errors="replace")
    fields, _ = front_matter(text)
    name, description = _line(fields.get("name", "")), _line(fields.get("description", ""))
    if not fields:
        return BadSkill(file.path, "has no head; it begins with lines `---`, `name: ...`, `description: ...` and `---`")
    if not name or not description:
        return BadSkill(file.path, f"says no {'description' if name else 'name'} in its head")
    for what, value, limit in (("name", name, MAX_NAME), ("description", description, MAX_DESCRIPTION)):
        if len(value) > limit:
            return BadSkill(file.path, f"has a {what} of {len(value)} characters; {limit} are allowed")
    return Skill(name=name, description=description, scope=scope, path=file.path, text=text)


def without_doubles(found: Iterable[Skill | BadSkill]) -> Iterator[Skill | BadSkill]:
    """Replace each skill whose name an earlier one has; leave out what was found before (a home that is a project)."""
    first: dict[str, str] = {}
    seen: set[str] = set()
    for one in found:
        if one.path in seen:
            continue
        seen.add(one.path)
        if isinstance(one, Skill) and first.setdefault(one.name, one.path) != one.path:
            yield BadSkill(one.path, f"has the name of {first[one.name]}, which is used")
        else:
            yield one


def _line(text: str) -> str:
    """Return the text in one line, without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
