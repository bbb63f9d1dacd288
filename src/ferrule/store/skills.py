"""Skills and their versions. The zip of a version lies beside the database, like the content of a file."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from ferrule.store import paging
from ferrule.store.contents import Content, Received
from ferrule.store.errors import StoreRefusal
from ferrule.store.part import Part
from ferrule.store.records import LATEST, FileRecord, Page, Paging, Skill, SkillVersion, Which
from ferrule.store.schema import skill_versions, skills

MAX_BUNDLE_BYTES = 32 << 20
"""Bytes of the zip of a version: what it holds has at most 25 MB unpacked."""

_LAST = (
    select(func.max(skill_versions.c.version))
    .where(skill_versions.c.skill == skills.c.number)
    .correlate(skills)
    .scalar_subquery()
)
_DEFAULT = (skill_versions.c.skill == skills.c.number) & (skill_versions.c.version == skills.c.default_version)
_VERSION: Select[Any] = select(skill_versions, skills.c.id.label("skill_id"), skills.c.owner).join(
    skills, skill_versions.c.skill == skills.c.number
)


class Skills(Part):
    """Skills by id."""

    async def create_skill(self, owner: str, version: SkillVersion, bundle: bytes) -> Skill:
        """Store a new skill with its first version, which is the default. Raises `TooLarge`."""
        return await self._kept(await self._receive(bundle), _create, owner, version)

    async def add_skill_version(
        self, owner: str, version: SkillVersion, bundle: bytes, *, default: bool
    ) -> SkillVersion | None:
        """Store a version with the next number, and make it the default; None if there is no such skill. Raises
        `TooLarge`."""
        if await self.skill(owner, version.skill) is None:
            return None
        return await self._kept(await self._receive(bundle), _add, owner, version, default)

    async def skill(self, owner: str, skill_id: str) -> Skill | None:
        """Return a skill."""
        return await self._database.read(_skill, owner, skill_id)

    async def skills(self, owner: str, paging: Paging) -> Page[Skill]:
        """Return a page of an owner's skills."""
        return await self._database.read(_skills, owner, paging)

    async def skill_version(self, owner: str, skill_id: str, which: Which = None) -> SkillVersion | None:
        """Return a version of a skill."""
        row = await self._database.read(_row, owner, skill_id, which)
        return None if row is None else _record(row)

    async def skill_versions(self, owner: str, skill_id: str, paging: Paging) -> Page[SkillVersion] | None:
        """Return a page of a skill's versions; None if there is no such skill."""
        return await self._database.read(_versions, owner, skill_id, paging)

    async def skill_content(self, owner: str, skill_id: str, which: Which = None) -> Content | None:
        """Open the zip of a version. Raises `StoreError` if another program changed it."""
        row = await self._database.read(_row, owner, skill_id, which)
        if row is None:
            return None
        file = await asyncio.to_thread(self._contents.open, row.content, row.bytes)
        named = FileRecord(
            id=row.id,
            owner=owner,
            created_at=row.created_at,
            filename=f"{row.name}.zip",
            purpose="skill",
            bytes=row.bytes,
        )
        return Content(named, file)

    async def set_default_version(self, owner: str, skill_id: str, version: int) -> Skill | None:
        """Make a version the default; None if there is no such skill. Raises `StoreRefusal` if it has no such
        version."""
        return await self._database.write(_set_default, owner, skill_id, version)

    async def delete_skill(self, owner: str, skill_id: str) -> bool:
        """Delete a skill with all its versions; False if there is none."""
        return await self._forgotten(_delete, owner, skill_id)

    async def delete_skill_version(self, owner: str, skill_id: str, version: int) -> SkillVersion | None:
        """Delete a version, and return it; None if there is none. Raises `StoreRefusal` for the default version."""
        return await self._forgotten(_delete_version, owner, skill_id, version)

    async def _receive(self, bundle: bytes) -> Received:
        return await self._contents.receive(_once(bundle), MAX_BUNDLE_BYTES, "files")


def known_bundles(tx: Connection) -> set[str]:
    """Return the names of the contents that are known."""
    return {*tx.scalars(select(skill_versions.c.content))}


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _create(tx: Connection, received: Received, owner: str, version: SkillVersion) -> Skill:
    first = {"id": version.skill, "owner": owner, "created_at": version.created_at}
    tx.execute(insert(skills), first | {"default_version": 1, "last_version": 0})
    _add(tx, received, owner, version, True)
    made = _skill(tx, owner, version.skill)
    assert made is not None
    return made


def _add(tx: Connection, received: Received, owner: str, version: SkillVersion, default: bool) -> SkillVersion | None:
    found = tx.execute(select(skills).where(skills.c.owner == owner, skills.c.id == version.skill)).first()
    if found is None:
        return None
    made = msgspec.structs.replace(version, version=found.last_version + 1, bytes=received.bytes)
    tx.execute(
        insert(skill_versions),
        msgspec.structs.asdict(made) | {"skill": found.number, "content": received.name},
    )
    numbers = {"last_version": made.version} | ({"default_version": made.version} if default else {})
    tx.execute(update(skills).where(skills.c.number == found.number).values(numbers))
    return made


def _shown() -> Select[Any]:
    """Return the query for skills, each with what its default version says."""
    own = [skills.c[name] for name in ("number", "id", "created_at", "default_version")]
    told = [skill_versions.c.name, skill_versions.c.description]
    return select(*own, *told, _LAST.label("latest_version")).join_from(skills, skill_versions, _DEFAULT)


def _skill_of(row: Row[Any]) -> Skill:
    return Skill(**{name: getattr(row, name) for name in Skill.__struct_fields__})


def _skill(tx: Connection, owner: str, skill_id: str) -> Skill | None:
    row = tx.execute(_shown().where(skills.c.owner == owner, skills.c.id == skill_id)).first()
    return None if row is None else _skill_of(row)


def _skills(tx: Connection, owner: str, which: Paging) -> Page[Skill]:
    return paging.read_page(tx, _shown(), skills.c.owner == owner, which, _skill_of)


def _row(tx: Connection, owner: str, skill_id: str, which: Which) -> Row[Any] | None:
    wanted = skills.c.default_version if which is None else _LAST if which == LATEST else which
    rows = _VERSION.where(skills.c.owner == owner, skills.c.id == skill_id, skill_versions.c.version == wanted)
    return tx.execute(rows).first()


def _record(row: Row[Any]) -> SkillVersion:
    fields = {name: getattr(row, name) for name in SkillVersion.__struct_fields__}
    return SkillVersion(**fields | {"skill": row.skill_id})


def _versions(tx: Connection, owner: str, skill_id: str, which: Paging) -> Page[SkillVersion] | None:
    if _skill(tx, owner, skill_id) is None:
        return None
    scope = (skills.c.owner == owner) & (skills.c.id == skill_id)
    return paging.read_page(tx, _VERSION, scope, which, _record)


def _set_default(tx: Connection, owner: str, skill_id: str, version: int) -> Skill | None:
    if _skill(tx, owner, skill_id) is None:
        return None
    if _row(tx, owner, skill_id, version) is None:
        raise StoreRefusal(f"the skill {skill_id} has no version {version}", "default_version")
    of_this = (skills.c.owner == owner) & (skills.c.id == skill_id)
    tx.execute(update(skills).where(of_this).values(default_version=version))
    return _skill(tx, owner, skill_id)


def _delete(tx: Connection, owner: str, skill_id: str) -> tuple[bool, list[str]]:
    of_this = (skills.c.owner == owner) & (skills.c.id == skill_id)
    contents = select(skill_versions.c.content).join(skills, skill_versions.c.skill == skills.c.number)
    forgotten = [*tx.scalars(contents.where(of_this))]
    gone = tx.execute(delete(skills).where(of_this))
    return gone.rowcount > 0, forgotten


def _delete_version(tx: Connection, owner: str, skill_id: str, version: int) -> tuple[SkillVersion | None, list[str]]:
    row, skill = _row(tx, owner, skill_id, version), _skill(tx, owner, skill_id)
    if row is None or skill is None:
        return None, []
    if version == skill.default_version:
        raise StoreRefusal(
            f"version {version} is the default of the skill {skill_id}: make another one the default first, or delete "
            "the skill",
            "version",
        )
    tx.execute(delete(skill_versions).where(skill_versions.c.number == row.number))
    return _record(row), [row.content]
