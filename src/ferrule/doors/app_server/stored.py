"""The client's requests about stored threads: listed, read, named, archived, deleted."""

import os
from functools import partial
from pathlib import Path

import msgspec

from ferrule._version import __version__
from ferrule.doors.app_server.connection import Answer, Connection
from ferrule.doors.app_server.history import changed_at, seconds_of, turns_of
from ferrule.doors.app_server.shapes import told
from ferrule.doors.app_server.shapes.common import Empty
from ferrule.doors.app_server.shapes.items import AgentMessage, UserMessage
from ferrule.doors.app_server.shapes.requests import (
    LoadedThreads,
    PageParams,
    ThreadList,
    ThreadListParams,
    ThreadNameParams,
    ThreadParams,
    ThreadReadParams,
    ThreadResult,
    TurnsList,
    TurnsListParams,
)
from ferrule.doors.app_server.shapes.threads import ItemsView, NotLoaded, Thread, Turn
from ferrule.protocol.errors import UsageError
from ferrule.rpc import RpcError
from ferrule.session.index import SessionEntry, SessionIndex
from ferrule.session.rollout import read_head
from ferrule.tools.tasks import run_blocking

SOURCES = frozenset({"cli", "vscode", "exec", "appServer", "unknown"})
"""Kinds of threads that people began: how is not kept."""
PAGE, MOST = 25, 100
"""Threads or turns in an answer: where the client says nothing, and at most."""


def find(home: str, thread_id: str) -> SessionEntry:
    """Return a stored session by its whole id. Raises `RpcError`."""
    try:
        entry = SessionIndex(home).find(thread_id)
    except UsageError:
        entry = None
    if entry is None or entry.id != thread_id:
        raise RpcError(f"no thread has the id {thread_id!r}: thread/list lists them")
    return entry


def page(cursor: str | None, limit: int | None, count: int) -> tuple[slice, str | None]:
    """Return which part of a list is asked for, and where the next one begins. Raises `RpcError`."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise RpcError(f"cursor: {cursor!r} is none of ours")
    if limit is not None and limit < 1:
        raise RpcError("limit: at least 1")
    start = int(cursor or 0)
    end = start + min(limit or PAGE, MOST)
    return slice(start, end), str(end) if end < count else None


def shape_of(client: Connection, entry: SessionEntry, turns: tuple[Turn, ...] = ()) -> Thread:
    """Return a stored thread as it is told."""
    if (loaded := client.threads.get(entry.id)) is not None:
        return loaded.shape(turns)
    head = read_head(Path(entry.path))
    return Thread(
        id=entry.id,
        session_id=entry.id,
        cwd=entry.cwd or "/",
        created_at=seconds_of(entry.created),
        updated_at=entry.updated // 1_000_000_000 or changed_at(entry.path),
        status=NotLoaded(),
        model_provider="" if head is None else head.model_provider,
        preview=entry.prompt,
        name=entry.name or None,
        path=entry.path,
        forked_from_id=None if head is None else head.forked_from_id,
        parent_thread_id=entry.parent or None,
        cli_version=__version__ if head is None else head.cli_version,
        turns=turns,
    )


async def list_threads(client: Connection, params: ThreadListParams, answer: Answer) -> None:
    """List stored threads, the one that changed last first."""
    if params.sort_key not in (None, "created_at", "updated_at", "recency_at"):
        raise RpcError(f"sortKey: {params.sort_key!r} is not served: created_at, updated_at and recency_at are")
    found = await run_blocking(partial(_listed, client.home, params))
    part, after = page(params.cursor, params.limit, len(found))
    answer(ThreadList(data=tuple(shape_of(client, entry) for entry in found[part]), next_cursor=after))


def _listed(home: str, params: ThreadListParams) -> list[SessionEntry]:
    entries = SessionIndex(home).entries(archived=bool(params.archived))
    if params.cwd is not None:
        given = (params.cwd,) if isinstance(params.cwd, str) else params.cwd
        places = {os.path.realpath(cwd) for cwd in given if "\0" not in cwd}
        entries = [entry for entry in entries if os.path.realpath(entry.cwd or "/") in places]
    if params.source_kinds and not SOURCES & set(params.source_kinds):
        return []  # only sub-agents, which are not listed
    if params.included_thread_ids is not None:
        entries = [entry for entry in entries if entry.id in params.included_thread_ids]
    if params.excluded_thread_ids:
        entries = [entry for entry in entries if entry.id not in params.excluded_thread_ids]
    if params.search_term:
        term = params.search_term.casefold()
        entries = [entry for entry in entries if term in f"{entry.name}\n{entry.prompt}".casefold()]
    if params.sort_key == "created_at":
        entries.sort(key=lambda entry: entry.created, reverse=True)
    return entries[::-1] if params.sort_direction == "asc" else entries


async def read(client: Connection, params: ThreadReadParams, answer: Answer) -> None:
    """Read a thread, with all that was said and done if that is wanted."""
    loaded = client.threads.get(params.thread_id)
    if loaded is not None:
        path = loaded.session.path
        stored = params.include_turns and path is not None and path.exists()
        answer(ThreadResult(thread=loaded.shape(await run_blocking(turns_of, path) if stored and path else ())))
        return
    entry = await run_blocking(find, client.home, params.thread_id)
    turns = await run_blocking(turns_of, Path(entry.path)) if params.include_turns else ()
    answer(ThreadResult(thread=shape_of(client, entry, turns)))


async def list_turns(client: Connection, params: TurnsListParams, answer: Answer) -> None:
    """List a part of a thread's turns, the newest first."""
    entry = await run_blocking(find, client.home, params.thread_id)
    turns = await run_blocking(turns_of, Path(entry.path))
    ordered = turns if params.sort_direction == "asc" else turns[::-1]
    part, after = page(params.cursor, params.limit, len(ordered))
    shown = tuple(_viewed(turn, params.items_view or "summary") for turn in ordered[part])
    answer(TurnsList(data=shown, next_cursor=after))


def _viewed(turn: Turn, view: ItemsView) -> Turn:
    """Return a turn with as much of it as is wanted: a summary is what was asked, and the last answer."""
    items = turn.items
    if view == "summary":
        said = [item for item in items if isinstance(item, UserMessage)][:1]
        items = (*said, *[item for item in items if isinstance(item, AgentMessage)][-1:])
    return msgspec.structs.replace(turn, items=() if view == "notLoaded" else items, items_view=view)


async def list_loaded(client: Connection, params: PageParams, answer: Answer) -> None:
    """List the open threads."""
    ids = tuple(client.threads)
    part, after = page(params.cursor, params.limit, len(ids))
    answer(LoadedThreads(data=ids[part], next_cursor=after))


async def rename(client: Connection, params: ThreadNameParams, answer: Answer) -> None:
    """Give a thread a name."""
    await run_blocking(find, client.home, params.thread_id)
    entry = await run_blocking(SessionIndex(client.home).rename, params.thread_id, params.name)
    if (loaded := client.threads.get(entry.id)) is not None:
        loaded.name = entry.name
    answer(Empty())
    client.tell(told.NameUpdated(thread_id=entry.id, thread_name=entry.name))


async def archive(client: Connection, params: ThreadParams, answer: Answer) -> None:
    """Close a thread, and move it where it is not listed."""
    await _close(client, params.thread_id)
    await run_blocking(SessionIndex(client.home).archive, params.thread_id)
    answer(Empty())
    client.tell(told.Archived(thread_id=params.thread_id))


async def delete(client: Connection, params: ThreadParams, answer: Answer) -> None:
    """Close a thread and delete it."""
    await _close(client, params.thread_id)
    await run_blocking(SessionIndex(client.home).remove, params.thread_id)
    answer(Empty())
    client.tell(told.Deleted(thread_id=params.thread_id))


async def _close(client: Connection, thread_id: str) -> None:
    await run_blocking(find, client.home, thread_id)
    if (loaded := client.threads.get(thread_id)) is not None:
        await client.close_thread(loaded)
        client.tell(told.Closed(thread_id=thread_id))
