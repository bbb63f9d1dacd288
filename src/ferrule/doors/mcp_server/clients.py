"""The clients of the server: each has its own session of tools, its calls, and what they left behind."""

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

import msgspec
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    InputResponses,
    ListRootsRequest,
    ListRootsResult,
    Tool,
)
from pydantic import ValidationError

from ferrule.doors.mcp_server.calls import Call, Context, Notes
from ferrule.doors.mcp_server.offer import Asking, Offer, Opener
from ferrule.doors.mcp_server.results import failure
from ferrule.doors.mcp_server.roots import folder_of, narrowed
from ferrule.doors.mcp_server.shelf import Shelf
from ferrule.protocol.errors import Fatal, FerruleError
from ferrule.protocol.settings import Settings
from ferrule.sync import AsyncClosing

ROOTS_S = 5.0
"""Seconds for a client to say its roots: it knows them without asking anybody."""

PARKED_S = 3600.0
"""Seconds that a call waits for the answer of the client's user: whoever has not answered by then has left."""

MAX_ROOTS = 64
"""Roots of one client that are looked at: more folders than people open."""

MAX_PARKED = 64
"""Calls of one client that wait for answers: more than a user can be asked. The oldest goes first."""

ROOTS = "roots"
"""The state and the name of the question for a client's roots, in the era that asks by answers."""

NOT_OPEN = (
    "this call does not wait for an answer (any more): it needed approval, and the question was answered, or withdrawn "
    "after a time"
)


class _Parked(msgspec.Struct, frozen=True):
    """A call that waits for the answer to a question, and what it was called with."""

    call: Call
    name: str
    arguments: dict[str, Any]
    timer: asyncio.TimerHandle


class Client(AsyncClosing):
    """One client. `has_roots`: what it says of its roots holds for all its later requests."""

    def __init__(self, settings: Settings, opener: Opener, *, has_roots: bool = True) -> None:
        self.shelf = Shelf()
        self.notes = Notes()
        self._configured = settings
        self._settings = settings
        self._opener = opener
        self._offer: Offer | None = None
        self._opening, self._learning = asyncio.Lock(), asyncio.Lock()
        self._knows_roots = not has_roots
        self._calls: dict[Call, Offer | None] = {}
        self._parked: dict[str, _Parked] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def has_calls(self) -> bool:
        """Whether calls run, or wait for an answer."""
        return bool(self._calls)

    def end_calls(self) -> None:
        """End all calls that run."""
        for call in tuple(self._calls):
            self._later(call.end())

    def forget_roots(self) -> None:
        """Ask for the roots again before the next call."""
        self._knows_roots = False

    async def tools(self, ctx: Context) -> list[Tool]:
        """Return what the client can call. Raises `MCPError`."""
        try:
            return (await self._opened(ctx)).tools()
        except MCPError:
            if self._knows_roots or not _has_roots(ctx) or _asks_by_answers(ctx):
                raise
        # A client that starts us nowhere in particular says by its roots where to work.
        async with self._learning:
            await self._learn_roots(ctx, {})
        return (await self._opened(ctx)).tools()

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Serve a request that calls a tool, or goes on with a call that asked something."""
        answers = params.input_responses or {}
        if params.request_state not in (None, ROOTS):
            parked = self._taken(params)
            return failure(NOT_OPEN) if parked is None else await self._go_on(ctx, parked, params, answers)
        async with self._learning:
            if not self._knows_roots and _has_roots(ctx):
                if _asks_by_answers(ctx) and params.request_state is None:
                    return InputRequiredResult(input_requests={ROOTS: ListRootsRequest()}, request_state=ROOTS)
                await self._learn_roots(ctx, answers)
        call = Call(f"call_{secrets.token_hex(8)}", self.notes, elicits=_elicits(ctx))
        self._calls[call] = None
        call.start(self._run(ctx, call, params.name, params.arguments or {}), self._calls.pop)
        return await self._go_on(ctx, call, params, {})

    async def _run(self, ctx: Context, call: Call, name: str, arguments: dict[str, Any]) -> CallToolResult:
        try:
            self._calls[call] = offer = await self._opened(ctx)
            return await offer.call(call, name, arguments)
        except Fatal as error:
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error
        except FerruleError as error:
            return failure(str(error))

    async def _go_on(
        self, ctx: Context, call: Call, params: CallToolRequestParams, answers: InputResponses
    ) -> CallToolResult | InputRequiredResult:
        result = await call.go_on(ctx, answers)
        if result is not None:
            return result
        token = secrets.token_urlsafe(16)
        if len(self._parked) >= MAX_PARKED:
            self._expire(next(iter(self._parked)))
        timer = asyncio.get_running_loop().call_later(PARKED_S, self._expire, token)
        self._parked[token] = _Parked(call, params.name, params.arguments or {}, timer)
        return InputRequiredResult(input_requests=dict(call.questions()), request_state=token)

    def _taken(self, params: CallToolRequestParams) -> Call | None:
        """Return the call that waits for this answer; it must be the same call that asked."""
        parked = self._parked.get(params.request_state or "")
        if parked is None or (parked.name, parked.arguments) != (params.name, params.arguments or {}):
            return None
        del self._parked[params.request_state or ""]
        parked.timer.cancel()
        return parked.call

    def _expire(self, token: str) -> None:
        """End a call whose question nobody has answered."""
        parked = self._parked.pop(token)
        parked.timer.cancel()
        self._later(parked.call.end())

    async def _learn_roots(self, ctx: Context, answers: InputResponses) -> None:
        """Ask the client for its roots, and let its session work there. Another session that it had ends with the calls
        that run in it."""
        self._knows_roots = True
        try:
            uris = await self._roots(ctx, answers)
        except BaseException:
            self._knows_roots = False
            raise
        folders = [folder for uri in uris[:MAX_ROOTS] if (folder := folder_of(uri)) is not None]
        found = narrowed(self._configured, folders)
        for root in found.outside:
            self.notes.add("warning", f"{root} stays outside of what may be written: it is not in the directory of -C")
        if found.settings != self._settings:
            self._settings, offer, self._offer = found.settings, self._offer, None
            if offer is not None:
                self._later(self._retire(offer))

    async def _roots(self, ctx: Context, answers: InputResponses) -> list[str]:
        if _asks_by_answers(ctx):
            given = answers.get(ROOTS)
            return [str(root.uri) for root in given.roots] if isinstance(given, ListRootsResult) else []
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        try:
            listed = await ctx.session.send_request(ListRootsRequest(), ListRootsResult, ROOTS_S, related)
        except (MCPError, ValidationError) as error:
            self.notes.add("warning", f"the client did not say its roots: {error}")
            return []
        return [str(root.uri) for root in listed.roots]

    async def _opened(self, ctx: Context) -> Offer:
        """Return what is offered, opened when it is first needed. Raises `MCPError`."""
        async with self._opening:
            while self._offer is None:
                settings, asking = self._settings, Asking(self.notes, self.shelf, _elicits(ctx))
                try:
                    opened = await self._opener(settings, asking)
                except FerruleError as error:
                    raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error
                if settings == self._settings:
                    self._offer = opened
                else:  # the roots have changed meanwhile
                    await opened.aclose()
            return self._offer

    async def _retire(self, offer: Offer) -> None:
        """Close an offer as soon as its last call has ended."""
        for call in [call for call, used in self._calls.items() if used is offer]:
            await call.over()
        await offer.aclose()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """End all calls, and what they have left running."""
        for parked in self._parked.values():
            parked.timer.cancel()
        await asyncio.gather(*(call.end() for call in tuple(self._calls)))
        offer, self._offer = self._offer, None
        await asyncio.gather(*self._closing, *(() if offer is None else (offer.aclose(),)))


def _asks_by_answers(ctx: Context) -> bool:
    return not ctx.session.can_send_request


def _elicits(ctx: Context) -> bool:
    """Tell whether the client shows its user forms."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _has_roots(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and capabilities.roots is not None
