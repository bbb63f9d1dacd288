"""The calls of a client while they run: who asks in them, what they tell, how they end.

A call is a task of its own. In the handshake era it is one request, in which its user is asked by requests to the
client. In the era of 2026-07-28 a server asks by an answer (`input_required`): the call waits, and the client's next
request goes on with it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import msgspec
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputResponses,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from pydantic import ValidationError

from ferrule.tools.tasks import end_tasks

Context = ServerRequestContext[Any, Any]

PROGRESS_S = 1.0
"""Seconds between two reports of progress: a client that hears nothing for some seconds gives a call up."""

MAX_NOTES = 64
"""Messages to the user that wait for the next call, in which they can be told."""

LEVELS: tuple[LoggingLevel, ...] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Note(msgspec.Struct, frozen=True):
    """A message for the client's log."""

    level: LoggingLevel
    text: str


class Notes:
    """Messages for the client's log, from the least `level` that it wants."""

    def __init__(self) -> None:
        self.level: LoggingLevel = "info"
        self._waiting: deque[Note] = deque(maxlen=MAX_NOTES)

    def add(self, level: LoggingLevel, text: str) -> None:
        """Tell this in a call that runs, or the next one."""
        self._waiting.append(Note(level, text))

    async def tell(self, ctx: Context) -> None:
        """Send what waits."""
        allowed = allowed_log_levels(ctx.protocol_version, ctx.meta)
        while self._waiting:
            note = self._waiting.popleft()
            if note.level not in allowed or LEVELS.index(note.level) < LEVELS.index(self.level):
                continue
            params = LoggingMessageNotificationParams(level=note.level, logger="ferrule", data=note.text)
            await ctx.session.send_notification(LoggingMessageNotification(params=params), ctx.request_id)


class _Asked(msgspec.Struct, frozen=True):
    form: ElicitRequestFormParams
    answer: "asyncio.Future[ElicitResult]"


class Call:
    """One call. `latest` is the last thing heard of it, for people. `elicits`: its client can ask its user."""

    def __init__(self, call_id: str, notes: Notes, *, elicits: bool) -> None:
        self.id = call_id
        self.elicits = elicits
        self.latest = ""
        self._notes = notes
        self._ctx: Context | None = None
        self._open: dict[str, _Asked] = {}
        self._shown: frozenset[str] = frozenset()
        self._asked = 0
        self._stirred = asyncio.Event()
        self._began = time.monotonic()
        self._work: asyncio.Task[CallToolResult] | None = None

    def start(self, work: Coroutine[Any, Any, CallToolResult], when_over: "Callable[[Call], object]") -> None:
        """Begin the work of the call."""
        self._work = asyncio.create_task(work)
        self._work.add_done_callback(lambda _: self._stirred.set())
        self._work.add_done_callback(lambda _: when_over(self))

    @property
    def is_ending(self) -> bool:
        """Whether it was cancelled."""
        return self._work is not None and self._work.cancelling() > 0

    async def over(self) -> None:
        """Wait until nothing of the call runs."""
        if self._work is not None:
            await asyncio.wait([self._work])

    async def end(self) -> None:
        """End the call, and wait until nothing of it runs."""
        if self._work is not None:
            await end_tasks([self._work])

    async def ask(self, form: ElicitRequestFormParams) -> ElicitResult | None:
        """Ask the client's user; None where the client fails to."""
        ctx = self._ctx
        assert ctx is not None
        if not ctx.session.can_send_request:
            return await self._ask_by_answer(form)
        try:
            return await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)
        except (MCPError, ValidationError):
            return None

    async def _ask_by_answer(self, form: ElicitRequestFormParams) -> ElicitResult:
        self._asked += 1
        name = f"question-{self._asked}"
        asked = self._open[name] = _Asked(form, asyncio.get_running_loop().create_future())
        self._stirred.set()
        try:
            return await asked.answer
        finally:
            del self._open[name]

    async def go_on(self, ctx: Context, answers: InputResponses | None = None) -> CallToolResult | None:
        """Serve one request of the call: until it is done, or (None) asks its user something.

        If the request is cancelled, the call is: all that it runs has ended before this returns.
        """
        self._ctx = ctx
        self._take(answers or {})
        assert self._work is not None
        telling = asyncio.create_task(self._tell(ctx))
        try:
            await self._stirred.wait()
            await self._notes.tell(ctx)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await end_tasks([self._work, telling])
            raise
        finally:
            telling.cancel()
        if self._work.cancelled():
            raise MCPError(code=INTERNAL_ERROR, message="the call was ended by the server")
        return self._work.result() if self._work.done() else None

    def questions(self) -> dict[str, ElicitRequest]:
        """Return what the call asks, for an answer to the request that is served."""
        asked = {name: asked.form for name, asked in self._open.items() if not asked.answer.done()}
        self._shown = frozenset(asked)
        return {name: ElicitRequest(params=form) for name, form in asked.items()}

    def _take(self, answers: Mapping[str, Any]) -> None:
        """Take the answers of the client's user. A question that was shown and got none is one that was cancelled."""
        for name in self._shown & self._open.keys():
            given = answers.get(name)
            self._open[name].answer.set_result(
                given if isinstance(given, ElicitResult) else ElicitResult(action="cancel")
            )
        unshown, self._shown = self._open.keys() - self._shown, frozenset()
        if not unshown and self._work is not None and not self._work.done():
            self._stirred.clear()

    async def _tell(self, ctx: Context) -> None:
        """Report progress as long as the request is served."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            await self._notes.tell(ctx)
            seconds = time.monotonic() - self._began
            latest = f": {self.latest}" if self.latest else ""
            await ctx.session.report_progress(round(seconds, 1), None, f"{seconds:.0f} s{latest}")
