"""Skills in containers: which ones a client names, what the model is told of them, and their files at `/mnt/skills`."""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import uuid4

import msgspec

from ferrule.containers.removal import remove_tree
from ferrule.hosted.bundles import NAME, BadBundle, Bundle, read_bundle, write_files
from ferrule.hosted.tool import ToolRefused
from ferrule.sandbox.linux.root import SKILLS
from ferrule.skills import MAX_DESCRIPTION, SKILL_FILE
from ferrule.store import LATEST, Which

if TYPE_CHECKING:
    from ferrule.store import Store

MOST_SKILLS = 32
"""Of one container: they take up to 800 MB of disk, and the model reads each one's description in every request."""
VERSION_DIGITS = 9
"""Of a version's number: more than any skill has."""
READ_AT_ONCE = 2
"""Skills that are unpacked at a time: each takes up to 50 MB of memory."""
TOLD = (
    f"\n\nSkills are folders with instructions and files for one kind of task, read-only below {SKILLS}. If a task is "
    f"of a skill's kind, read its {SKILL_FILE} first and do as it says:"
)


class SkillReference(msgspec.Struct, frozen=True, tag="skill_reference", tag_field="type"):
    """A stored skill. `version` is a number or `latest`; None for the default version."""

    skill_id: str
    version: str | None = None


class InlineSource(msgspec.Struct, frozen=True):
    """A zip in the request."""

    type: Literal["base64"]
    media_type: Literal["application/zip"]
    data: str


class InlineSkill(msgspec.Struct, frozen=True, tag="inline", tag_field="type"):
    """A skill that is in the request."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^{NAME.pattern}\Z")]
    description: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_DESCRIPTION)]
    source: InlineSource


SkillParam = SkillReference | InlineSkill


class ShownSkill(msgspec.Struct, frozen=True):
    """A skill of a container, as the model is told of it."""

    name: str
    description: str


class FoundSkill(msgspec.Struct, frozen=True):
    """A skill that a client names. `key` stands for its content; `origin` says where that is."""

    shown: ShownSkill
    key: str
    origin: SkillParam


def skills_note(skills: Sequence[ShownSkill]) -> str:
    """Return what the model is told of skills beside a tool's own words."""
    lines = [f"- {skill.name}: {skill.description} ({SKILLS}/{skill.name}/{SKILL_FILE})" for skill in skills]
    return "\n".join([TOLD, *lines]) if lines else ""


class ClientSkills:
    """The skills of a gateway's clients, which lie in `store`."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._reading = asyncio.Semaphore(READ_AT_ONCE)

    async def find(self, owner: str, named: Sequence[SkillParam], param: str) -> tuple[FoundSkill, ...]:
        """Look up the skills that a client names in the field `param`. Raises `ToolRefused`."""
        if len(named) > MOST_SKILLS:
            raise ToolRefused(f"a container has at most {MOST_SKILLS} skills", param, code="invalid_value")
        found: dict[str, FoundSkill] = {}
        for at, skill in enumerate(named):
            one = await self._found(owner, skill, f"{param}[{at}]")
            if one.shown.name in found:
                text = f"two skills are called {one.shown.name!r}, and they would have the same folder"
                raise ToolRefused(text, f"{param}[{at}]", code="invalid_value")
            found[one.shown.name] = one
        return tuple(found.values())

    async def write(self, owner: str, folder: Path, skills: Iterable[FoundSkill]) -> None:
        """Write skills into a container's folder for them; what has a name of theirs is replaced. Raises `ToolRefused`
        for one that was deleted meanwhile, and `OSError`."""
        for skill in skills:
            bundle = await self._bundle(owner, skill.origin, "skills")
            await asyncio.to_thread(_replace, folder / skill.shown.name, bundle)

    async def read(self, data: bytes, name: str | None = None, description: str | None = None) -> Bundle:
        """Read a zip. Raises `BadBundle`."""
        async with self._reading:
            return await asyncio.to_thread(read_bundle, data, name, description)

    async def _found(self, owner: str, skill: SkillParam, param: str) -> FoundSkill:
        if isinstance(skill, InlineSkill):
            await self._bundle(owner, skill, param)
            text = f"{skill.name}\0{skill.source.data}"
            shown = ShownSkill(skill.name, " ".join(skill.description.split()))
            return FoundSkill(shown, hashlib.sha256(text.encode()).hexdigest(), skill)
        version = await self._store.skill_version(owner, skill.skill_id, which_of(skill.version, f"{param}.version"))
        if version is None:
            raise await self._missing(owner, skill, param)
        exact = SkillReference(skill.skill_id, str(version.version))
        return FoundSkill(ShownSkill(version.name, version.description), version.id, exact)

    async def _missing(self, owner: str, skill: SkillReference, param: str) -> ToolRefused:
        if await self._store.skill(owner, skill.skill_id) is None:
            text, field = f"there is no skill {skill.skill_id!r}", "skill_id"
        else:
            text, field = f"the skill {skill.skill_id!r} has no version {skill.version!r}", "version"
        return ToolRefused(text, f"{param}.{field}", status=404, code="not_found")

    async def _bundle(self, owner: str, skill: SkillParam, param: str) -> Bundle:
        """Return what a skill holds. Raises `ToolRefused`."""
        try:
            if isinstance(skill, InlineSkill):
                field = f"{param}.source.data"
                return await self.read(_decoded(skill.source.data), skill.name, skill.description)
            field = f"{param}.skill_id"
            which = which_of(skill.version, f"{param}.version")
            content = await self._store.skill_content(owner, skill.skill_id, which)
            if content is None:
                raise await self._missing(owner, skill, param)
            return await self.read(b"".join([block async for block in content]))
        except BadBundle as error:
            raise ToolRefused(str(error), field, code="invalid_value") from error


def which_of(version: str | None, param: str = "version") -> Which:
    """Return the version that a client names. Raises `ToolRefused`."""
    if version is None:
        return None
    if version == "latest":
        return LATEST
    if not (version.isascii() and version.isdigit() and len(version) <= VERSION_DIGITS):
        raise ToolRefused(f"{version!r} is neither the number of a version nor 'latest'", param, code="invalid_value")
    return int(version)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadBundle(f"it is not base64: {error}") from error


def _replace(place: Path, bundle: Bundle) -> None:
    """Write a skill beside the folder that commands see, and put it there when it is whole. Blocking."""
    staged = place.parent.parent / f"skill-{uuid4().hex}"
    older = place.parent.parent / f"skill-{uuid4().hex}"
    try:
        write_files(staged, bundle.files)
        if place.exists():
            os.rename(place, older)
        os.rename(staged, place)
    finally:
        for leftover in (staged, older):
            remove_tree(leftover)
