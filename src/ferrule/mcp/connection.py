"""A live connection to one server. A single task enters and leaves everything that belongs to it."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import anyio
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, ValidationError

from ferrule._version import __version__
from ferrule.mcp.callbacks import Ask, Progress
from ferrule.mcp.clock import CallClock
from ferrule.mcp.errors import FailureKind, McpFailure
from ferrule.mcp.http import LOGIN_NEEDED, http_status
from ferrule.mcp.lenient import declares, server_name
from ferrule.mcp.task_call import run_task
from ferrule.mcp.wire import Wire, take_answer
from ferrule.process.launcher import LaunchError
from ferrule.protocol.events import ElicitationRequest
from ferrule.protocol.json_text import JsonValue
from ferrule.sync import close_at_exit
from ferrule.tools.questions import Elicited
from mcp import types

MAX_ROUNDS = 10
"""Times that one call may ask for more input."""


class Transport(AbstractAsyncContextManager[Any], Protocol):
    """Yields the two message streams. `said` explains a failure by the server's output."""

    exit_code: int | None

    def said(self) -> str: ...


class Connection:
    """Opened by `open`. Once it is no longer `alive`, `failure` says what happened."""

    def __init__(
        self,
        server: str,
        transport: Transport,
        ask: Ask | None,
        on_tools_changed: Callable[[], None],
        roots: Sequence[str] = (),
        *,
        propagate: bool = False,
    ) -> None:
        self.server = server
        self._transport = transport
        self._ask = ask
        self._on_tools_changed = on_tools_changed
        self._roots = roots
        self._propagate = propagate
        self._task_numbers = itertools.count(1)
        self._task_progress: dict[str | int, ProgressFnT] = {}
        self._closing = anyio.Event()
        self._clocks: set[CallClock] = set()
        self._questions = 0
        self._entering = True
        self._session: ClientSession
        self._opened: asyncio.Future[None]
        self._task: asyncio.Task[None]
        self._wire: Wire | None = None
        self.failure: McpFailure | None = None

    @property
    def alive(self) -> bool:
        """Whether requests can be sent."""
        return not self._task.done() and self._wire is not None and not self._wire.ended.is_set()

    async def open(self, timeout: float) -> None:
        """Connect and shake hands within `timeout` seconds. Raises `McpFailure`."""
        self._opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._own(self._opened, timeout), name=f"ferrule-mcp-{self.server}")
        try:
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            await self.close()
            self._opened.exception()
            raise

    async def close(self) -> None:
        """End the connection, and the process behind it. May be called more than once."""
        self._closing.set()
        if self._entering:  # afterwards a cancellation would only disturb the way out
            self._entering = False
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._opened.done():  # it was cancelled before it began
            self._opened.set_exception(McpFailure(self.server, "refused", "was closed"))

    async def _own(self, opened: "asyncio.Future[None]", timeout: float) -> None:
        closed = close_at_exit(self.close)
        try:
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(timeout):
                        wire = await self._enter(stack)
                finally:
                    self._entering = False
                opened.set_result(None)
                await self._until_over(wire)
        except asyncio.CancelledError:
            self.failure = McpFailure(self.server, "refused", "was closed")
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whatever ends a connection is told, once
            self.failure = self._explain(error, timeout)
        else:
            self.failure = self._explain(None, timeout)
        finally:
            closed()
        if not opened.done():
            opened.set_exception(self.failure)

    async def _enter(self, stack: AsyncExitStack) -> Wire:
        read, write = await stack.enter_async_context(self._transport)
        self._wire = Wire(read, write, propagate=self._propagate)
        self._session = await stack.enter_async_context(self._make_session(self._wire))
        await _shake_hands(self._session)
        return self._wire

    async def _until_over(self, wire: Wire) -> None:
        async with anyio.create_task_group() as group:
            if self._session.protocol_version in MODERN_PROTOCOL_VERSIONS and _tells_changes(self._session):
                group.start_soon(self._listen)
            for event in (wire.ended, self._closing):
                group.start_soon(_cancel_after, event, group.cancel_scope)

    async def _listen(self) -> None:
        """Subscribe to changes: on the newer protocol a server reports them only to listeners."""
        with suppress(MCPError, SubscriptionLost, TimeoutError):
            async with listen(self._session, tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_tools_changed()

    def _make_session(self, wire: Wire) -> ClientSession:
        return ClientSession(
            dispatcher=wire,
            client_info=types.Implementation(name="ferrule", version=__version__),
            message_handler=self._on_message,
            elicitation_callback=None if self._ask is None else self._on_elicitation,
            list_roots_callback=self._on_list_roots if self._roots else None,
        )

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()
        elif isinstance(message, types.ProgressNotification):
            told = message.params
            if progressed := self._task_progress.get(told.progress_token):
                await progressed(told.progress, told.total, told.message)

    async def _on_list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        folders = (Path(folder) for folder in self._roots)
        roots = [types.Root(uri=FileUrl(folder.as_uri()), name=folder.name or "/") for folder in folders]
        return types.ListRootsResult(roots=roots)

    async def _on_elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        assert self._ask is not None
        schema: JsonValue = None
        message = params.message
        if isinstance(params, types.ElicitRequestFormParams):
            schema = params.requested_schema
        else:
            message = f"{message}\n{params.url}"
        question = ElicitationRequest(request_id="", server=self.server, message=message, schema=schema)
        with self._asking():
            answer = await self._ask(question)
        if not isinstance(answer, Elicited):
            return types.ElicitResult(action="cancel")
        content = answer.content if answer.action == "accept" and isinstance(answer.content, dict) else None
        try:
            return types.ElicitResult.model_validate({"action": answer.action, "content": content})
        except ValidationError:
            return types.ElicitResult(action="cancel")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Stop the clocks of all calls while a person thinks."""
        self._questions += 1
        for clock in self._clocks:
            clock.hold()
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                for clock in self._clocks:
                    clock.release()

    async def list_tools(self, cursor: str | None) -> dict[str, JsonValue]:
        """Return one page of the server's tools as it sent it. Raises `MCPError`."""
        page = types.PaginatedRequestParams(cursor=cursor) if cursor else None
        try:
            with _readable():
                await self._session.list_tools(params=page)
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND and not self.declares("tools"):
                return {"tools": []}  # a server of resources or prompts alone
            raise
        return take_answer()

    def declares(self, *path: str) -> bool:
        """Return whether the server declares a capability, as in `declares("tasks", "requests", "tools", "call")`."""
        return self._wire is not None and declares(self._wire.greeting, *path)

    @property
    def server_name(self) -> str:
        """The server's name for itself, with its version."""
        return "" if self._wire is None else server_name(self._wire.greeting)

    async def call_tool(
        self,
        tool: str,
        arguments: dict[str, JsonValue],
        timeout: float,
        on_progress: Progress | None,
        *,
        as_task: bool = False,
    ) -> dict[str, JsonValue]:
        """Return the result of a call as the server sent it. Progress renews the call's time.

        Raises `TimeoutError` (the server is told that nobody waits any longer) and `MCPError`.
        """
        async with asyncio.timeout(timeout) as deadline:
            clock = CallClock(deadline, timeout)
            if self._questions:
                clock.hold()
            self._clocks.add(clock)

            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                clock.renew()
                if clock.runs and on_progress is not None:  # what comes after the end of its call is nobody's
                    on_progress(progress, total, message or "")

            try:
                if as_task:
                    return await self._call_as_task(tool, arguments, clock, progressed)
                return await self._call(tool, arguments, progressed)
            finally:
                clock.over = True
                self._clocks.discard(clock)

    async def _call(self, tool: str, arguments: dict[str, JsonValue], progressed: Any) -> dict[str, JsonValue]:
        answers, state = None, None
        for _ in range(MAX_ROUNDS):
            with _readable():
                result = await self._session.call_tool(
                    tool,
                    arguments,
                    progress_callback=progressed,
                    input_responses=answers,
                    request_state=state,
                    allow_input_required=True,
                    allow_claimed=True,
                )
            if not isinstance(result, types.InputRequiredResult):
                return take_answer()
            state = result.request_state
            answers = {key: await self._input(key, wanted) for key, wanted in (result.input_requests or {}).items()}
        raise MCPError(types.INTERNAL_ERROR, f"the server asked for more input {MAX_ROUNDS} times")

    async def _call_as_task(
        self, tool: str, arguments: dict[str, JsonValue], clock: CallClock, progressed: ProgressFnT
    ) -> dict[str, JsonValue]:
        """Run the call as a task of the server, whose progress arrives under our own token until it ends."""
        assert self._wire is not None
        token = f"task-{next(self._task_numbers)}"
        said = ""

        async def alive(words: str) -> None:
            nonlocal said
            clock.renew()
            if words != said:
                said = words
                await progressed(0.0, None, words)

        self._task_progress[token] = progressed
        try:
            call = {"name": tool, "arguments": arguments, "_meta": {"progressToken": token}}
            return await run_task(self._wire.ask, call, alive)
        finally:
            del self._task_progress[token]

    async def _input(self, key: str, wanted: types.InputRequest) -> types.InputResponse:
        context = ClientRequestContext(session=self._session, request_id=key, meta=None)
        answer = await self._session.dispatch_input_request(context, wanted)
        if isinstance(answer, types.ErrorData):
            raise MCPError(answer.code, f"the server asks for what is not offered here ({answer.message})")
        return answer

    async def request(self, method: str, params: Mapping[str, JsonValue], timeout: float) -> dict[str, JsonValue]:
        """Return lists of resources or their contents, as JSON. Raises `MCPError` and `TimeoutError`."""
        cursor = params.get("cursor")
        page = types.PaginatedRequestParams(cursor=cursor) if cursor else None
        async with asyncio.timeout(timeout):
            with _readable():
                if method == "resources/list":
                    await self._session.list_resources(params=page)
                elif method == "resources/templates/list":
                    await self._session.list_resource_templates(params=page)
                else:
                    result = await self._session.read_resource(str(params["uri"]), allow_input_required=True)
                    if isinstance(result, types.InputRequiredResult):
                        text = "the server asks for input first, which only calls can give"
                        raise MCPError(types.INTERNAL_ERROR, text)
        return take_answer()

    def _explain(self, error: BaseException | None, timeout: float) -> McpFailure:
        error = _first(error)
        kind, text = _cause(error, timeout)
        code = self._transport.exit_code
        if code is not None and kind == "crash":  # after a refusal it exits because we leave
            text = f"exited with code {code}"
        said = self._transport.said()
        code, status = (error.code, http_status(error)) if isinstance(error, MCPError) else (None, None)
        text = f"{text}; {said}" if said and kind != "launch" else text
        return McpFailure(self.server, kind, text, code=code, status=status)


def _first(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _cause(error: BaseException | None, timeout: float) -> tuple[FailureKind, str]:
    match error:
        case None:
            return "crash", "closed the connection"
        case LaunchError():
            return "launch", f"cannot be started: {error}"
        case TimeoutError():
            return "timeout", f"did not answer within {timeout:g} seconds (startup_timeout)"
        case MCPError() if error.code == LOGIN_NEEDED:
            return "login", error.message
        case MCPError() if error.code == types.CONNECTION_CLOSED:
            return "crash", "closed the connection"
        case MCPError():
            return "refused", f"refused the connection: {error.message}"
    return "unreachable", f"cannot be reached: {type(error).__name__}: {error}"


async def _shake_hands(session: ClientSession) -> None:
    """Send `initialize`, which nearly every server knows, and `server/discover` if that is refused."""
    try:
        with _readable():
            await session.initialize()
    except MCPError as refused:
        if refused.code not in (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION):
            raise
        try:
            with _readable():
                await session.discover()
        except (MCPError, RuntimeError) as error:  # RuntimeError: there is no version that both know
            if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
                raise
            raise refused from error


@contextmanager
def _readable() -> Iterator[None]:
    """Turn an answer that the SDK cannot read into an error of the server."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        text = f"its answer is not what the protocol asks for ({where}: {first['msg']})"
        raise MCPError(types.INTERNAL_ERROR, text) from error


def _tells_changes(session: ClientSession) -> bool:
    capabilities = session.server_capabilities
    return capabilities is not None and capabilities.tools is not None and bool(capabilities.tools.list_changed)


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
