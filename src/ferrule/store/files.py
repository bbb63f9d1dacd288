"""Files, and uploads that become files. Their contents lie beside the database."""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, or_, select, update

from ferrule.store import paging
from ferrule.store.contents import Content, Contents, Received, read_blocks
from ferrule.store.errors import StoreError, StoreRefusal, TooLarge
from ferrule.store.part import Part
from ferrule.store.records import FileRecord, Page, Paging, Upload, UploadPart
from ferrule.store.schema import files, upload_parts, uploads, vector_store_files

MAX_FILE_BYTES = 512 << 20
MAX_PART_BYTES = 64 << 20
MAX_UPLOAD_BYTES = 8 << 30
"""The sizes that OpenAI's API takes, so that clients which split their files by them are served."""

MAX_PARTS = 10_000
"""Parts of an upload: one of 8 GB in parts below 1 MB would only fill the folder with names."""

FILES_PAGE = 10_000
"""Entries of a page of files at most, as the API says."""

REMEMBERED_SECONDS = 24 * 60 * 60
"""How long an upload that ended can still be asked for."""


class Files(Part):
    """Files and uploads by id. A file whose time has come is gone, even before `expire_files` deletes it."""

    async def create_file(
        self, record: FileRecord, chunks: AsyncIterable[bytes], most: int = MAX_FILE_BYTES
    ) -> FileRecord:
        """Store a file; return it with its size. Raises `TooLarge` above `most` bytes, and what `chunks` raises."""
        return await self._kept(await self._contents.receive(chunks, most), _create_file, record)

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        """Return a file."""
        found = await self._database.read(_file, owner, file_id)
        return found and found[0]

    async def files(self, owner: str, paging: Paging, purpose: str | None = None) -> Page[FileRecord]:
        """Return a page of an owner's files, all or those with a purpose."""
        return await self._database.read(_files, owner, paging, purpose)

    async def content(self, owner: str, file_id: str) -> Content | None:
        """Open a file's content. Raises `StoreError` if another program changed it."""
        found = await self._database.read(_file, owner, file_id)
        if found is None:
            return None
        record, name = found
        return Content(record, await asyncio.to_thread(self._contents.open, name, record.bytes))

    async def delete_file(self, owner: str, file_id: str) -> bool:
        """Delete a file; False if there is none."""
        return await self._forgotten(_delete_file, owner, file_id)

    async def create_upload(self, record: Upload) -> None:
        """Store a new upload. Raises `TooLarge` if more than `MAX_UPLOAD_BYTES` are announced."""
        if record.bytes > MAX_UPLOAD_BYTES:
            raise TooLarge(f"an upload has at most {MAX_UPLOAD_BYTES:,} bytes", "bytes")
        await self._database.write(_create_upload, record)

    async def upload(self, owner: str, upload_id: str) -> Upload | None:
        """Return an upload."""
        return await self._database.read(_upload, owner, upload_id)

    async def add_part(
        self, owner: str, part: UploadPart, chunks: AsyncIterable[bytes], *, now: int
    ) -> UploadPart | None:
        """Add a part to an upload, and return it with its size; None if there is no such upload.

        Raises `TooLarge` above `MAX_PART_BYTES`, and `StoreRefusal` if the upload has ended or has enough already.
        """
        if await self._database.read(_pending, owner, part.upload, now) is None:
            return None
        received = await self._contents.receive(chunks, MAX_PART_BYTES, "data")
        return await self._kept(received, _add_part, owner, part, now)

    async def complete_upload(
        self,
        owner: str,
        upload_id: str,
        part_ids: Sequence[str],
        *,
        file_id: str,
        now: int,
        md5: str | None = None,
    ) -> tuple[Upload, FileRecord] | None:
        """Make the file of an upload from its parts, in this order; None if there is no such upload.

        Raises `StoreRefusal` if the upload has ended, a part is missing or named twice, or the parts do not have the
        size announced or the sum `md5`; then the upload goes on.
        """
        upload = await self._database.read(_pending, owner, upload_id, now)
        if upload is None:
            return None
        parts = await self._database.read(_parts, owner, upload, tuple(part_ids))
        try:
            received = await self._contents.receive(_joined(self._contents, parts), MAX_UPLOAD_BYTES)
        except StoreError:
            await self._database.read(_pending, owner, upload_id, now)  # parts go when it is ended beside this
            raise
        file = FileRecord(
            id=file_id,
            owner=owner,
            created_at=now,
            filename=upload.filename,
            purpose=upload.purpose,
            expires_at=None if upload.kept_seconds is None else now + upload.kept_seconds,
        )
        completed, kept, forgotten = await self._kept(received, _complete_upload, upload, file, md5)
        await asyncio.to_thread(self._contents.remove, forgotten)
        return completed, kept

    async def cancel_upload(self, owner: str, upload_id: str) -> Upload | None:
        """Cancel an upload and delete its parts; None if there is none. Raises `StoreRefusal` if it has ended."""
        return await self._forgotten(_cancel_upload, owner, upload_id)

    async def expire_files(self, now: int) -> int:
        """Delete the files, and end the uploads, whose time has come; return how many."""
        return await self._forgotten(_expire, now)


def known_contents(tx: Connection) -> set[str]:
    """Return the names of all contents that are known."""
    return {*tx.scalars(select(files.c.content)), *tx.scalars(select(upload_parts.c.content))}


async def _joined(contents: Contents, parts: Sequence[tuple[str, int]]) -> AsyncIterator[bytes]:
    for name, size in parts:
        file = await asyncio.to_thread(contents.open, name, size)
        try:
            async for block in read_blocks(file):
                yield block
        finally:
            file.close()


def _create_file(tx: Connection, received: Received, record: FileRecord) -> FileRecord:
    record = msgspec.structs.replace(record, bytes=received.bytes)
    tx.execute(insert(files), msgspec.structs.asdict(record) | {"content": received.name})
    return record


def _file(tx: Connection, owner: str, file_id: str) -> tuple[FileRecord, str] | None:
    row = tx.execute(select(files).where(files.c.owner == owner, files.c.id == file_id, is_kept())).first()
    return None if row is None else (_file_record(row), row.content)


def is_kept() -> ColumnElement[bool]:
    """Return the condition for files whose time has not come."""
    return or_(files.c.expires_at.is_(None), files.c.expires_at > int(time.time()))


def _file_record(row: Row[Any]) -> FileRecord:
    return FileRecord(**{name: getattr(row, name) for name in FileRecord.__struct_fields__})


def _files(tx: Connection, owner: str, which: Paging, purpose: str | None) -> Page[FileRecord]:
    scope = (files.c.owner == owner) & is_kept()
    if purpose is not None:
        scope &= files.c.purpose == purpose
    return paging.read_page(tx, select(files), scope, which, _file_record, FILES_PAGE)


def _delete_file(tx: Connection, owner: str, file_id: str) -> tuple[bool, Sequence[str]]:
    found = _file(tx, owner, file_id)
    if found is None:
        return False, ()
    tx.execute(delete(files).where(files.c.owner == owner, files.c.id == file_id))
    tx.execute(delete(vector_store_files).where(vector_store_files.c.file == file_id))
    return True, (found[1],)


def _create_upload(tx: Connection, record: Upload) -> None:
    tx.execute(insert(uploads), msgspec.structs.asdict(record))


def _upload(tx: Connection, owner: str, upload_id: str) -> Upload | None:
    row = tx.execute(select(uploads).where(uploads.c.owner == owner, uploads.c.id == upload_id)).first()
    return None if row is None else Upload(**{name: getattr(row, name) for name in Upload.__struct_fields__})


def _pending(tx: Connection, owner: str, upload_id: str, now: int) -> Upload | None:
    """Return an upload that goes on. Raises `StoreRefusal` for one that has ended."""
    upload = _upload(tx, owner, upload_id)
    if upload is None:
        return None
    status = "expired" if upload.status == "pending" and upload.expires_at <= now else upload.status
    if status != "pending":
        raise StoreRefusal(f"the upload {upload_id} is {status}; create another", "upload_id")
    return upload


def _number(tx: Connection, upload: Upload) -> int:
    this = select(uploads.c.number).where(uploads.c.owner == upload.owner, uploads.c.id == upload.id)
    number: int = tx.execute(this).scalar_one()
    return number


def _add_part(tx: Connection, received: Received, owner: str, part: UploadPart, now: int) -> UploadPart | None:
    upload = _pending(tx, owner, part.upload, now)
    if upload is None:
        return None
    number = _number(tx, upload)
    sums = select(func.count(), func.coalesce(func.sum(upload_parts.c.bytes), 0))
    count, size = tx.execute(sums.where(upload_parts.c.upload == number)).one()
    if count >= MAX_PARTS or size + received.bytes > MAX_UPLOAD_BYTES:
        raise TooLarge(f"an upload has at most {MAX_PARTS:,} parts and {MAX_UPLOAD_BYTES:,} bytes", "data")
    part = msgspec.structs.replace(part, bytes=received.bytes)
    tx.execute(insert(upload_parts), msgspec.structs.asdict(part) | {"upload": number, "content": received.name})
    return part


def _parts(tx: Connection, owner: str, upload: Upload, part_ids: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return contents and sizes of parts, in this order. Raises `StoreRefusal` if they do not make the whole."""
    rows = tx.execute(select(upload_parts).where(upload_parts.c.upload == _number(tx, upload)))
    known = {row.id: (row.content, row.bytes) for row in rows}
    missing = [part_id for part_id in part_ids if part_id not in known]
    if missing:
        raise StoreRefusal(f"the upload {upload.id} has no part {missing[0]!r}", "part_ids")
    if len(set(part_ids)) < len(part_ids):
        raise StoreRefusal("a part is named twice", "part_ids")
    size = sum(known[part_id][1] for part_id in part_ids)
    if size != upload.bytes:
        raise StoreRefusal(f"the parts have {size:,} bytes, but {upload.bytes:,} were announced", "part_ids")
    return [known[part_id] for part_id in part_ids]


def _complete_upload(
    tx: Connection, received: Received, upload: Upload, file: FileRecord, md5: str | None
) -> tuple[Upload, FileRecord, list[str]]:
    if md5 is not None and md5.lower() != received.md5:
        raise StoreRefusal(f"the parts have the MD5 sum {received.md5}, not {md5}", "md5")
    _pending(tx, upload.owner, upload.id, file.created_at)
    done = msgspec.structs.replace(upload, status="completed", file=file.id)
    return done, _create_file(tx, received, file), _end_upload(tx, done)


def _end_upload(tx: Connection, upload: Upload) -> list[str]:
    """Store an upload's last state, and forget its parts. Returns their contents."""
    number = _number(tx, upload)
    tx.execute(update(uploads).where(uploads.c.number == number).values(status=upload.status, file=upload.file))
    of_this = upload_parts.c.upload == number
    forgotten = list(tx.scalars(select(upload_parts.c.content).where(of_this)))
    tx.execute(delete(upload_parts).where(of_this))
    return forgotten


def _cancel_upload(tx: Connection, owner: str, upload_id: str) -> tuple[Upload | None, Sequence[str]]:
    upload = _upload(tx, owner, upload_id)
    if upload is None:
        return None, ()
    if upload.status in ("cancelled", "expired"):
        raise StoreRefusal(f"the upload {upload_id} is {upload.status} already", "upload_id")
    if upload.status == "completed":
        raise StoreRefusal(f"the upload {upload_id} is completed; delete its file {upload.file} instead", "upload_id")
    cancelled = msgspec.structs.replace(upload, status="cancelled")
    return cancelled, _end_upload(tx, cancelled)


def _expire(tx: Connection, now: int) -> tuple[int, Sequence[str]]:
    old = files.c.expires_at <= now
    forgotten = list(tx.scalars(select(files.c.content).where(old)))
    tx.execute(delete(vector_store_files).where(vector_store_files.c.file.in_(select(files.c.id).where(old))))
    tx.execute(delete(files).where(old))
    count = len(forgotten)
    late = select(uploads.c.owner, uploads.c.id).where(uploads.c.expires_at <= now, uploads.c.status == "pending")
    for owner, upload_id in tx.execute(late).all():
        upload = _upload(tx, owner, upload_id)
        assert upload is not None
        forgotten += _end_upload(tx, msgspec.structs.replace(upload, status="expired"))
        count += 1
    tx.execute(delete(uploads).where(uploads.c.expires_at < now - REMEMBERED_SECONDS))
    return count, forgotten
