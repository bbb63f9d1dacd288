"""Run a call as a task of the server: start it, poll it until it is done, cancel it when nobody waits any longer.

The form is that of protocol 2025-11-25, which has `tasks/get`, `tasks/result` and `tasks/cancel`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from ferrule.mcp.http import LOGIN_NEEDED
from ferrule.protocol.json_text import JsonValue
from mcp import MCPError, types

TASK_SECONDS = 3600
"""Seconds that the server is asked to keep a task and its result: longer than any call waits."""
POLL_SECONDS, SHORTEST_POLL, LONGEST_POLL = 1.0, 0.05, 10.0
"""Seconds between two polls if the server suggests none, and the range in which its suggestion counts."""
CANCEL_SECONDS = 2.0
"""Seconds to tell a server that a task is cancelled."""

ENDED = ("completed", "failed", "cancelled")

Request = Callable[[str, dict[str, JsonValue]], Coroutine[Any, Any, dict[str, Any]]]
Alive = Callable[[str], Awaitable[None]]
"""Called at each answer with the task's status in words: a server that answers is still working on it."""


async def run_task(request: Request, call: Mapping[str, JsonValue], alive: Alive) -> dict[str, Any]:
    """Start `tools/call` as a task and return the answer of `tasks/result`. Raises `MCPError`."""
    created = await request("tools/call", {**call, "task": {"ttl": TASK_SECONDS * 1000}})
    task = created.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    if not isinstance(task, dict) or not isinstance(task_id, str):
        return created  # it answered at once
    try:
        return await _result_of(request, task_id, task, alive)
    except asyncio.CancelledError:
        await _in_time(request("tasks/cancel", {"taskId": task_id}))
        raise
    except MCPError as error:
        if error.code in (types.CONNECTION_CLOSED, LOGIN_NEEDED):
            raise
        # Whatever the code says, the call has been made and is not made again.
        raise MCPError(types.INTERNAL_ERROR, f"its task failed: {error.message}") from error


async def _result_of(request: Request, task_id: str, task: dict[str, Any], alive: Alive) -> dict[str, Any]:
    result: asyncio.Future[dict[str, Any]] | None = None
    try:
        while task.get("status") not in ENDED:
            await alive(_words(task))
            if task.get("status") == "input_required" and result is None:  # it asks over the request for the result
                result = asyncio.ensure_future(request("tasks/result", {"taskId": task_id}))
            pause = _pause(task.get("pollInterval"))
            if result is None:
                await asyncio.sleep(pause)
            elif (await asyncio.wait([result], timeout=pause))[0]:
                return await result
            task = await request("tasks/get", {"taskId": task_id})
        await alive(_words(task))
        return await (result or request("tasks/result", {"taskId": task_id}))
    finally:
        if result is not None:
            result.cancel()


async def _in_time(said: Coroutine[Any, Any, dict[str, Any]]) -> None:
    """Wait a short time for an answer that nobody needs."""
    # Not `asyncio.timeout`: before Python 3.11.4 its end is no TimeoutError in a task that was cancelled.
    task = asyncio.ensure_future(said)
    await asyncio.wait([task], timeout=CANCEL_SECONDS)
    task.cancel()
    with suppress(MCPError, asyncio.CancelledError):
        await task


def _words(task: Mapping[str, JsonValue]) -> str:
    message = task.get("statusMessage")
    return message if isinstance(message, str) and message else str(task.get("status") or "")


def _pause(milliseconds: JsonValue) -> float:
    given = milliseconds / 1000 if isinstance(milliseconds, int | float) else POLL_SECONDS
    return min(max(given, SHORTEST_POLL), LONGEST_POLL)
