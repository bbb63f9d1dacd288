"""The methods of the protocol: sessions that are begun, gone on with, listed and closed, and what is asked of each."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar, cast

import msgspec
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    ElicitationCapabilities,
    FileSystemCapabilities,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from pydantic import BaseModel

from acp import PROTOCOL_VERSION
from ferrule._version import __version__
from ferrule.config import Configuration, Sources
from ferrule.doors.acp.buffers import EditorFiles
from ferrule.doors.acp.choices import MODE, McpServer, place_of, with_servers
from ferrule.doors.acp.desk import Desk, Line, Place
from ferrule.doors.acp.messages import FAILED, INVALID_PARAMS, NOT_FOUND
from ferrule.doors.acp.words import Block
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.json_text import encodable
from ferrule.rpc import INVALID_REQUEST
from ferrule.sandbox.environment import refuse_nesting
from ferrule.session.index import SessionEntry, SessionIndex, locate
from ferrule.session.resuming import Given, settings_to_go_on
from ferrule.session.rollout import StoredSession, new_session_id, read_rollout
from ferrule.session.talk import Opening
from ferrule.tools.tasks import run_blocking

PAGE = 50
"""Sessions in one answer to a question for all."""
MAX_AWAKE = 16
"""Sessions that hold processes and connections; of more, those that rested longest let go of them until their next
prompt."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TERMINALS = "terminal_output"
"""The key of a client's `_meta` by which it says that it shows output as a terminal."""


class Programs(msgspec.Struct, frozen=True):
    """What the command line gives: where settings come from in a directory, with further directories and a mode; how
    they are loaded; what of a stored session it replaces; where sessions are."""

    sources: Callable[[str, tuple[str, ...], str | None], Sources]
    load: Callable[[Sources], Configuration]
    given: Given
    home: str


F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


def method(function: F) -> F:
    """Serve a method after `initialize`, and tell what is wrong as one error of the protocol."""

    @wraps(function)
    async def served(self: "Agent", *args: Any, **kwargs: Any) -> Any:
        if self.line is None:
            raise RequestError(INVALID_REQUEST, "initialize comes first")
        try:
            return await function(self, *args, **kwargs)
        except UsageError as error:
            raise RequestError(INVALID_PARAMS, encodable(str(error))) from error
        except FerruleError as error:
            raise RequestError(FAILED, encodable(str(error))) from error

    return cast("F", served)


class Agent:
    """Serves one client. `show` sends an update of a session."""

    def __init__(
        self, programs: Programs, show: Callable[[str, BaseModel], None], pace: Callable[[], Awaitable[None]]
    ) -> None:
        self._programs = programs
        self._show = show
        self._pace = pace
        self._client: Client | None = None
        self._files = FileSystemCapabilities()
        self.line: Line | None = None
        """The way to the client, once it has said who it is."""
        self._desks: dict[str, Desk] = {}  # the one that rested longest first
        self._going_on: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held while a session is being opened or closed."""

    def on_connect(self, conn: Client) -> None:
        """Take the connection."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **more: Any,
    ) -> InitializeResponse:
        """Say what is served."""
        # The SDK lets other values pass where an object should be.
        able = client_capabilities if isinstance(client_capabilities, ClientCapabilities) else ClientCapabilities()
        asks = able.elicitation or ElicitationCapabilities()
        assert self._client is not None
        self._files = able.fs or FileSystemCapabilities()
        self.line = Line(
            self._client,
            self._show,
            self._pace,
            terminals=bool((able.field_meta or {}).get(_TERMINALS)),
            has_forms=asks.form is not None,
        )
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="ferrule", title="Ferrule", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    @method
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **more: Any,
    ) -> NewSessionResponse:
        """Begin a session."""
        place = self._place(cwd, additional_directories, mcp_servers)
        loaded = place.load(None)
        opening = Opening(
            settings=place.complete(loaded.settings),
            sources=place.sources(None) if loaded.unconfirmed else None,
            warnings=loaded.warnings,
        )
        desk = await self._open(new_session_id(), place, opening)
        desk.later(desk.greet)
        return NewSessionResponse(session_id=desk.id, modes=desk.modes(), config_options=desk.options())

    @method
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[McpServer] | None = None,
        additional_directories: list[str] | None = None,
        **more: Any,
    ) -> LoadSessionResponse:
        """Go on with a stored session, and tell what was said in it."""
        place = self._place(cwd, additional_directories, mcp_servers)
        desk, stored = await self._go_on(place, session_id)
        await desk.replay(stored)
        desk.later(desk.greet)
        return LoadSessionResponse(modes=desk.modes(), config_options=desk.options())

    @method
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **more: Any,
    ) -> ResumeSessionResponse:
        """Go on with a stored session of which the client knows what was said."""
        place = self._place(cwd, additional_directories, mcp_servers)
        desk, _ = await self._go_on(place, session_id)
        desk.later(desk.greet)
        return ResumeSessionResponse(modes=desk.modes(), config_options=desk.options())

    @method
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **more: Any,
    ) -> ForkSessionResponse:
        """Go on in a copy of a session."""
        place = self._place(cwd, additional_directories, mcp_servers)
        await self._stored(session_id)
        open_here = self._desks.get(session_id)
        if open_here is not None and open_here.talk.session is not None:
            copy = open_here.talk.fork(open_here.talk.session)
        else:
            copy = await run_blocking(SessionIndex(self._programs.home).fork, session_id)
        try:
            desk, _ = await self._go_on(place, copy)
        except BaseException:
            with suppress(UsageError, OSError):
                SessionIndex(self._programs.home).remove(copy)
            raise
        desk.later(desk.greet)
        return ForkSessionResponse(session_id=desk.id, modes=desk.modes(), config_options=desk.options())

    @method
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **more: Any
    ) -> ListSessionsResponse:
        """List the stored sessions, the one that changed last first."""
        entries = await run_blocking(lambda: SessionIndex(self._programs.home).entries(cwd=cwd))
        first = 0
        if cursor is not None:
            ids = [entry.id for entry in entries]
            if cursor not in ids:
                raise UsageError("this cursor is of an earlier list: ask for the first page again")
            first = ids.index(cursor) + 1
        page = entries[first : first + PAGE]
        more_follow = len(entries) > first + PAGE
        return ListSessionsResponse(sessions=list(map(_info, page)), next_cursor=page[-1].id if more_follow else None)

    @method
    async def close_session(self, session_id: str, **more: Any) -> CloseSessionResponse:
        """End a session and all that runs in it; it can be gone on with."""
        self._desk(session_id)
        async with self._going_on[session_id]:  # who opens it again meanwhile waits
            desk = self._desk(session_id)
            del self._desks[session_id]
            await desk.close()
        return CloseSessionResponse()

    @method
    async def prompt(self, session_id: str, prompt: Sequence[Block], **more: Any) -> PromptResponse:
        """Let the user say something, and wait for the turn's end."""
        desk = self._desk(session_id)
        self._desks[session_id] = self._desks.pop(session_id)
        await self._make_room(desk)
        return await desk.prompt(prompt)

    @method
    async def set_session_mode(self, session_id: str, mode_id: str, **more: Any) -> SetSessionModeResponse:
        """Change what the session may do; while a turn runs, when it has ended."""
        await self._desk(session_id).choose(MODE, mode_id)
        return SetSessionModeResponse()

    @method
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **more: Any
    ) -> SetSessionConfigOptionResponse:
        """Change one of the options."""
        desk = self._desk(session_id)
        await desk.choose(config_id, value)
        return SetSessionConfigOptionResponse(config_options=desk.options())

    async def cancel(self, session_id: str, **more: Any) -> None:
        """End what runs in a session."""
        if (desk := self._desks.get(session_id)) is not None:
            await desk.cancel()

    async def aclose(self) -> None:
        """End every session."""
        desks, self._desks = self._desks, {}
        await asyncio.gather(*(desk.close() for desk in desks.values()))

    def _place(self, cwd: str, directories: Sequence[str] | None, servers: Sequence[McpServer] | None) -> Place:
        """Return where a session is to work. Raises `UsageError`."""
        real = place_of(cwd)
        added = tuple(map(place_of, directories or ()))
        programs = self._programs

        def sources(mode: str | None) -> Sources:
            return programs.sources(real, added, mode)

        def load(mode: str | None) -> Configuration:
            loaded = programs.load(sources(mode))
            refuse_nesting(loaded.settings)
            return loaded

        return Place(sources, load, lambda settings: with_servers(settings, servers or ()))

    async def _stored(self, session_id: str) -> StoredSession:
        """Return a stored session by its whole id: a client names no files."""
        if not _ID.fullmatch(session_id):
            raise _unknown(session_id)
        try:
            path = await run_blocking(locate, self._programs.home, session_id)
            return await run_blocking(read_rollout, path)
        except UsageError as error:
            raise _unknown(session_id) from error

    async def _go_on(self, place: Place, session_id: str) -> tuple[Desk, StoredSession]:
        """Open a stored session with its rights and its model, where the command line gives no others. One that is open
        here is opened anew, unless it is busy."""
        if not _ID.fullmatch(session_id):
            raise _unknown(session_id)
        async with self._going_on[session_id]:
            known = self._desks.get(session_id)
            if known is not None and not known.is_idle:
                raise UsageError("this session is busy: wait, or cancel its turn")
            stored = await self._stored(session_id)
            if known is not None:
                self._desks.pop(session_id, None)
                await known.close()
                stored = await self._stored(session_id)
            loaded = place.load(None)
            settings = settings_to_go_on(loaded.settings, stored, self._programs.given)
            opening = Opening(
                settings=place.complete(settings),
                stored=stored,
                sources=place.sources(None) if loaded.unconfirmed else None,
                warnings=loaded.warnings,
            )
            return await self._open(session_id, place, opening), stored

    async def _open(self, session_id: str, place: Place, opening: Opening) -> Desk:
        assert self.line is not None
        files = EditorFiles(self.line.client, session_id, self._files)
        desk = self._desks[session_id] = Desk(session_id, self.line, place, opening, files)
        try:
            await desk.open()
            await self._make_room(desk)  # not before: of many that are opened at once none sees another rest
        except BaseException:
            self._desks.pop(session_id, None)
            await desk.close()
            raise
        return desk

    async def _make_room(self, wanted: Desk) -> None:
        """Let sessions that rest longest go to sleep, until there is room for one that is awake, or soon is."""
        others = [desk for desk in self._desks.values() if desk is not wanted]
        for desk in [desk for desk in others if desk.is_resting]:
            if sum(other.is_awake for other in others) < MAX_AWAKE:
                return
            await desk.rest()

    def _desk(self, session_id: str) -> Desk:
        """Return an open session. Raises `RequestError`."""
        desk = self._desks.get(session_id)
        if desk is None:
            raise _unknown(session_id)
        return desk


def _unknown(session_id: str) -> RequestError:
    return RequestError(NOT_FOUND, f"there is no session {encodable(session_id)[:64]!r}")


def _info(entry: SessionEntry) -> SessionInfo:
    changed = datetime.fromtimestamp(entry.updated / 1e9, UTC).isoformat(timespec="milliseconds")
    title = encodable(entry.name or entry.prompt) or None
    return SessionInfo(session_id=entry.id, cwd=encodable(entry.cwd), title=title, updated_at=changed)
