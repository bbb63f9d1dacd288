"""The transport to a server that we start ourselves: our launcher under the SDK's session.

The SDK's own stdio client waits for the process group only; ours ends the whole tree, survives noise on stdout and any
amount of stderr, and reads only when a message is wanted.
"""

import asyncio
import os
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from ferrule.lookup import NOWHERE, Places
from ferrule.mcp.environment import server_directory, server_environment, server_program
from ferrule.mcp.lines import MessageReader
from ferrule.process.launcher import Child, Launcher, LaunchError, Limits, Pipes
from ferrule.process.streams import LAST_READ_BYTES, Reader, Writer
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.mcp_settings import McpServerSettings

EXIT_GRACE = 2.0
"""Seconds for a server to end by itself once its input is closed, and again after SIGTERM."""
MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Bytes that may wait for a server that does not read."""
STDERR_BYTES = 2048
"""Bytes kept of the end of a server's stderr."""
STDERR_LINES = 4
"""Its last lines that an error shows: many programs say what was wrong a few lines before their last word."""
READ_BYTES = 256 * 1024
"""Bytes of one read: large results come in few pieces, and other servers still get their turn in between."""

CHANGED = "notifications/tools/list_changed"
READ_NOTIFICATIONS = frozenset(
    {"notifications/progress", "notifications/cancelled", "notifications/subscriptions/acknowledged", CHANGED}
)
"""Those that the SDK's session or we use."""
_SHOWN = 300
"""Characters quoted of an error that is not in the protocol's form, and of a line of stderr."""


class StdioTransport:
    """Starts the server on entry; on exit ends it and everything that it started."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        launcher: Launcher,
        cwd: str,
        env: Mapping[str, str],
        places: Places = NOWHERE,
    ) -> None:
        self._settings = settings
        self._launcher = launcher
        self._cwd = server_directory(settings, cwd)
        self._env = server_environment(settings, env, places)
        self._program = server_program(settings, env, places)
        self._reader = MessageReader(name)
        self._stderr = b""
        self.exit_code: int | None = None

    async def __aenter__(self) -> "tuple[_Incoming, _Outgoing]":
        command, program = self._settings.command, self._program
        if program.path is None and program.passed_over:
            raise LaunchError(f"{program.problem}; if you want it all the same, write its whole path as the command")
        if program.path is None:
            path = self._env.get("PATH", os.defpath)
            raise LaunchError(f"program not found: {command} (PATH searched: {path})")
        argv = [program.path, *self._settings.args]
        child = await self._launcher.launch(argv, self._env, self._cwd, Pipes(stdin=True), Limits())
        assert child.stdin is not None and child.stderr is not None
        self._child = child
        self._errors = Reader(child.stderr, self._keep_stderr)
        self._incoming = _Incoming(child.stdout, self._reader)
        self._outgoing = _Outgoing(Writer(child.stdin))
        self._watch = asyncio.create_task(self._watch_exit(child))
        return self._incoming, self._outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outgoing.close()
        # Not `asyncio.timeout`: before Python 3.11.4 its end is no TimeoutError in a task that was cancelled.
        await asyncio.wait([self._watch], timeout=EXIT_GRACE)
        ended = self._watch.done()
        await self._child.kill_tree(grace=0.0 if ended else EXIT_GRACE)
        await asyncio.wait([self._watch], timeout=EXIT_GRACE)
        if not ended:
            self.exit_code = None  # that of our signal, which says nothing of the server
        self._watch.cancel()
        await self._errors.finish(grace=0.0)
        self._incoming.close()

    async def _watch_exit(self, child: Child) -> None:
        self.exit_code = (await child.wait()).shell_code
        self._incoming.no_more()

    def _keep_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data[-STDERR_BYTES:])[-STDERR_BYTES:]

    def said(self) -> str:
        """Return the output that may explain a failure: the end of stderr, the first bad line of stdout."""
        found = []
        if self._program.passed_over:
            found.append(f"{self._program.problem}, and {self._program.path} was started")
        lines = [line.strip() for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            found.append(f"its stderr ends with: {' / '.join(line[:_SHOWN] for line in lines[-STDERR_LINES:])}")
        if self._reader.first_bad_line:
            found.append(f"its first line that is no message: {self._reader.first_bad_line}")
        return "; ".join(found)


class _Incoming:
    """Messages from the server's stdout, read only when one is wanted: a flood waits in the pipe."""

    def __init__(self, fd: int, reader: MessageReader) -> None:
        self._fd = fd
        self._reader = reader
        self._messages: deque[SessionMessage] = deque()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = self._exited = False
        self._last_bytes = LAST_READ_BYTES
        self._said_change = False
        os.set_blocking(fd, False)

    async def receive(self) -> SessionMessage:
        while not self._messages:
            if self._closed:
                raise anyio.EndOfStream
            await (asyncio.sleep(0) if self._exited else self._readable())
            if not self._closed:
                self._read()
        return self._messages.popleft()

    def no_more(self) -> None:
        """Note that the server has exited: the rest of the pipe is still read, whoever else holds it open."""
        self._exited = True
        self._wake()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)  # now: afterwards the number may be another's
            os.close(self._fd)
            self._wake()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            data = b""
            if not self._exited:
                return
        if self._exited:
            self._last_bytes -= len(data)
        try:
            for message in self._reader.feed(data):
                if self._is_wanted(message):
                    self._messages.extend(_typed(message))
        except ConnectionError:
            data = b""
        if not data or self._last_bytes < 0:
            self.close()

    def _is_wanted(self, message: dict[str, JsonValue]) -> bool:
        """Return False for a notification that nobody reads, and for a repeated report of a change, so that a flood of
        them costs little."""
        method = message.get("method")
        if method is None or "id" in message:
            self._said_change = False
            return True
        said, self._said_change = self._said_change, method == CHANGED
        return method in READ_NOTIFICATIONS and not (said and self._said_change)

    async def _readable(self) -> None:
        self._waiter = self._loop.create_future()
        self._loop.add_reader(self._fd, self._wake)
        try:
            await self._waiter
        finally:
            if not self._closed:
                self._loop.remove_reader(self._fd)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def aclose(self) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Outgoing:
    """Messages on their way to the server's stdin."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        if self._closed or self._writer.broken or self._writer.unsent > MAX_UNSENT_BYTES:
            raise anyio.BrokenResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(text.encode("utf-8", "surrogatepass") + b"\n")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._writer.finish()

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _typed(message: dict[str, JsonValue]) -> list[SessionMessage]:
    """Return the message in the SDK's form; nothing if it is not JSON-RPC after all.

    An unreadable answer becomes an error for whoever waits for it.
    """
    result, number = message.get("result"), message.get("id")
    if isinstance(result, dict) and isinstance(number, int):  # the common case, without a validation of the whole
        return [SessionMessage(JSONRPCResponse.model_construct(jsonrpc="2.0", id=number, result=result))]
    try:
        return [SessionMessage(jsonrpc_message_adapter.validate_python({**message, "jsonrpc": "2.0"}, by_name=False))]
    except ValidationError:
        if isinstance(number, int | str) and "method" not in message:
            return [SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=_unreadable(message)))]
        return []


def _unreadable(message: dict[str, JsonValue]) -> ErrorData:
    said = message.get("error") or "neither a result nor an error that can be read"
    return ErrorData(code=INTERNAL_ERROR, message=f"the server answered: {str(said)[:_SHOWN]}")
