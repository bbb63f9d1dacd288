"""The client's requests about open threads: opened, told, interrupted, closed."""

from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.doors.app_server.connection import Answer, Connection
from ferrule.doors.app_server.history import seconds_of, turn_number, turns_of
from ferrule.doors.app_server.openings import configuration_for, dynamic_specs, given_in
from ferrule.doors.app_server.shapes import told
from ferrule.doors.app_server.shapes.common import Empty
from ferrule.doors.app_server.shapes.requests import (
    ThreadForkParams,
    ThreadParams,
    ThreadResumeParams,
    ThreadStartParams,
    TurnInterruptParams,
    TurnStartParams,
    TurnSteerParams,
    Unsubscribed,
)
from ferrule.doors.app_server.shapes.threads import Turn
from ferrule.doors.app_server.stored import find
from ferrule.doors.app_server.threads import OpenThread
from ferrule.protocol.errors import UsageError
from ferrule.rpc import RpcError
from ferrule.session.index import SessionEntry, SessionIndex
from ferrule.session.resuming import settings_to_go_on
from ferrule.session.rollout import read_rollout
from ferrule.tools.tasks import run_blocking

IGNORED = "the thread is open already, and its settings stay as they are: turn/start changes them"


async def start(client: Connection, params: ThreadStartParams, answer: Answer) -> None:
    """Open a new thread."""
    with client.room():
        configuration = configuration_for(params, client.configure)
        thread = await OpenThread.open(client, configuration, tools=dynamic_specs(params.dynamic_tools))
        client.add(thread)
    answer(thread.opened())
    client.tell(told.ThreadStarted(thread=thread.shape()))


async def resume(client: Connection, params: ThreadResumeParams, answer: Answer) -> None:
    """Open a stored thread, or return one that is open."""
    thread = client.threads.get(params.thread_id)
    if thread is not None:
        if any((params.cwd, params.model, params.sandbox, params.approval_policy, params.config)):
            client.tell(told.Warned(message=IGNORED, thread_id=thread.id))
        path = thread.session.path
        stored = path is not None and path.exists() and not params.exclude_turns
        answer(thread.opened(await _turns(path) if stored and path is not None else ()))
        return
    if client.others_ended is not None:
        await client.others_ended()  # the thread may have been open in a connection that this one follows
    entry = await run_blocking(find, client.home, params.thread_id)
    turns = () if params.exclude_turns else await _turns(Path(entry.path))
    thread = await _reopened(client, entry, params)
    answer(thread.opened(turns))


async def fork(client: Connection, params: ThreadForkParams, answer: Answer) -> None:
    """Open a copy of a thread."""
    if params.ephemeral:
        raise RpcError("ephemeral: a copy is stored as the thread is; start an ephemeral thread instead")
    entry = await run_blocking(find, client.home, params.thread_id)
    loaded = client.threads.get(params.thread_id)
    number = None
    if params.last_turn_id is not None:
        number = await run_blocking(turn_number, Path(entry.path), params.last_turn_id)
    if loaded is not None:
        new_id = loaded.talk.fork(loaded.session, number)
    else:
        new_id = await run_blocking(SessionIndex(client.home).fork, entry.id, number)
    copy = await run_blocking(find, client.home, new_id)
    try:
        turns = () if params.exclude_turns else await _turns(Path(copy.path))
        thread = await _reopened(client, copy, params)
    except BaseException:
        with suppress(UsageError, OSError):
            SessionIndex(client.home).remove(new_id)
        raise
    answer(thread.opened(turns))
    client.tell(told.ThreadStarted(thread=thread.shape()))


async def _reopened(
    client: Connection, entry: SessionEntry, params: ThreadResumeParams | ThreadForkParams
) -> OpenThread:
    """Open a stored session, in its directory and with its rights, unless the client gives others."""
    stored = await run_blocking(read_rollout, Path(entry.path))
    context = stored.context
    there = context.cwd if context is not None and Path(context.cwd).is_dir() else None
    configuration = configuration_for(params, client.configure, there)
    settings = settings_to_go_on(configuration.settings, stored, given_in(params))
    configuration = msgspec.structs.replace(configuration, settings=settings)
    with client.room():
        thread = await OpenThread.open(client, configuration, stored, dynamic_specs(params.dynamic_tools))
        client.add(thread)
    thread.created_at = seconds_of(entry.created) or thread.created_at
    thread.name, thread.preview, thread.forked_from = entry.name or None, entry.prompt, stored.meta.forked_from_id
    return thread


async def _turns(path: Path) -> tuple[Turn, ...]:
    return await run_blocking(turns_of, path)


async def unsubscribe(client: Connection, params: ThreadParams, answer: Answer) -> None:
    """Close a thread. It stays stored."""
    thread = client.threads.get(params.thread_id)
    if thread is None:
        answer(Unsubscribed(status="notLoaded"))
        return
    await client.close_thread(thread)
    answer(Unsubscribed(status="unsubscribed"))
    client.tell(told.Closed(thread_id=params.thread_id))


async def compact(client: Connection, params: ThreadParams, answer: Answer) -> None:
    """Replace a thread's conversation so far by a summary."""
    thread = client.thread(params.thread_id)
    thread.check_idle()
    answer(Empty())
    thread.compact()


async def start_turn(client: Connection, params: TurnStartParams, answer: Answer) -> None:
    """Run a turn."""
    await client.thread(params.thread_id).start_turn(params, answer)


async def steer(client: Connection, params: TurnSteerParams, answer: Answer) -> None:
    """Say something to the running turn."""
    answer(client.thread(params.thread_id).steer(params))


async def interrupt(client: Connection, params: TurnInterruptParams, answer: Answer) -> None:
    """End the running turn."""
    thread = client.thread(params.thread_id)
    thread.check_running("interrupt", params.turn_id)
    answer(Empty())
    thread.session.interrupt()
