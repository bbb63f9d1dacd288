"""One live connection to one server. A single task enters and leaves everything that belongs to it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Protocol

import anyio
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ferrule._version import __version__
from ferrule.mcp.errors import FailureKind, McpFailure
from ferrule.mcp.http import LOGIN_NEEDED
from ferrule.mcp.wire import Wire, take_answer
from ferrule.process.launcher import LaunchError
from ferrule.protocol.events import ElicitationRequest
from ferrule.protocol.json_text import JsonValue
from ferrule.tools.questions import Answer, Elicited
from mcp import types

MAX_CALL_SECONDS = 3600.0
"""A call that reports progress for ever ends here: an hour is more than anybody waits."""
MAX_ROUNDS = 10
"""How often one call may ask for more input."""

Progress = Callable[[float, float | None, str], None]
Ask = Callable[[ElicitationRequest], Awaitable[Answer]]


class Transport(AbstractAsyncContextManager[Any], Protocol):
    """Gives the two streams of messages. `said` explains a failure by what the server printed."""

    exit_code: int | None

    def said(self) -> str: ...


class Connection:
    """Made by `open`. Once it is not `alive` any more, `failure` says what happened."""

    def __init__(
        self, server: str, transport: Transport, ask: Ask | None, on_tools_changed: Callable[[], None]
    ) -> None:
        self.server = server
        self._transport = transport
        self._ask = ask
        self._on_tools_changed = on_tools_changed
        self._closing = anyio.Event()
        self._deadlines: dict[asyncio.Timeout, float] = {}
        self._asking = 0
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
        if not opened.done():
            opened.set_exception(self.failure)

    async def _enter(self, stack: AsyncExitStack) -> Wire:
        read, write = await stack.enter_async_context(self._transport)
        self._wire = Wire(read, write)
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
        """On the newer protocol a server tells of changes only to those who listen."""
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
        )

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()

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
        self._hold_clocks()
        try:
            answer = await self._ask(
                ElicitationRequest(request_id="", server=self.server, message=message, schema=schema)
            )
        finally:
            self._release_clocks()
        if not isinstance(answer, Elicited):
            return types.ElicitResult(action="cancel")
        content = answer.content if answer.action == "accept" and isinstance(answer.content, dict) else None
        try:
            return types.ElicitResult.model_validate({"action": answer.action, "content": content})
        except ValidationError:
            return types.ElicitResult(action="cancel")

    def _hold_clocks(self) -> None:
        """A call does not time out while a person thinks."""
        self._asking += 1
        for deadline in self._deadlines:
            deadline.reschedule(None)

    def _release_clocks(self) -> None:
        self._asking -= 1
        if not self._asking:
            now = asyncio.get_running_loop().time()
            for deadline, timeout in self._deadlines.items():
                deadline.reschedule(now + timeout)

    async def list_tools(self, cursor: str | None) -> dict[str, JsonValue]:
        """One page of the server's tools, as it said it. Raises `MCPError`."""
        await self._session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        return take_answer()

    async def call_tool(
        self, tool: str, arguments: dict[str, JsonValue], timeout: float, on_progress: Progress | None
    ) -> dict[str, JsonValue]:
        """The result of a call, as the server said it. Progress gives the call its time anew.

        Raises `TimeoutError` (the server is told that nobody waits any more) and `MCPError`.
        """
        loop = asyncio.get_running_loop()
        last = loop.time() + MAX_CALL_SECONDS
        async with asyncio.timeout(timeout) as deadline:
            self._deadlines[deadline] = timeout

            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                if not self._asking and not deadline.expired():
                    deadline.reschedule(min(loop.time() + timeout, last))
                if on_progress is not None:
                    on_progress(progress, total, message or "")

            try:
                return await self._call(tool, arguments, progressed)
            finally:
                del self._deadlines[deadline]

    async def _call(self, tool: str, arguments: dict[str, JsonValue], progressed: Any) -> dict[str, JsonValue]:
        answers, state = None, None
        for _ in range(MAX_ROUNDS):
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

    async def _input(self, key: str, wanted: types.InputRequest) -> types.InputResponse:
        context = ClientRequestContext(session=self._session, request_id=key, meta=None)
        answer = await self._session.dispatch_input_request(context, wanted)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        return answer

    async def request(self, method: str, params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Lists of resources and their contents, as JSON. Raises `MCPError`."""
        cursor = params.get("cursor")
        page = types.PaginatedRequestParams(cursor=cursor) if cursor else None
        answer: Any
        if method == "resources/list":
            answer = await self._session.list_resources(params=page)
        elif method == "resources/templates/list":
            answer = await self._session.list_resource_templates(params=page)
        else:
            answer = await self._session.read_resource(str(params["uri"]))
        dumped: dict[str, JsonValue] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return dumped

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources."""
        capabilities = self._session.server_capabilities
        return capabilities is not None and capabilities.resources is not None

    def _explain(self, error: BaseException | None, timeout: float) -> McpFailure:
        kind, text = _cause(error, timeout)
        code = self._transport.exit_code
        if code is not None and kind in ("crash", "refused"):
            kind, text = "crash", f"exited with code {code}"
        said = self._transport.said()
        return McpFailure(self.server, kind, f"{text}; {said}" if said and kind != "launch" else text)


def _cause(error: BaseException | None, timeout: float) -> tuple[FailureKind, str]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
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
    """`initialize`, which nearly every server knows; `server/discover` where it is refused."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION):
            raise
        await session.discover()


def _tells_changes(session: ClientSession) -> bool:
    capabilities = session.server_capabilities
    return capabilities is not None and capabilities.tools is not None and bool(capabilities.tools.list_changed)


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
