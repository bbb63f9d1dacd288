"""Serve the client at the other end of standard input and output: one JSON-RPC message a line, of bounded length.

A line that is no message gets an error and ends nothing.
"""

import os
from contextlib import closing
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.models import InitializationOptions
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest

from ferrule.doors.mcp_server.messages import answer_of, read_message
from ferrule.mcp.lines import LineSplitter
from ferrule.protocol.json_text import JsonValue
from ferrule.rpc import TOO_MANY, RpcError, too_long
from ferrule.stdio import write_all
from ferrule.tools.tasks import run_blocking

CHUNK = 64 * 1024
"""Bytes read at once: what a pipe holds."""

MAX_OPEN = 256
"""Requests that are served at once: more than a client waits for, few enough that one which floods us costs little."""

GRACE_S = 1.5
"""Seconds after the end of the input in which what was asked before is still answered: scripts write their requests and
close. With the end of what runs longer it stays far below 6."""

FLUSH_S = 0.5
"""Seconds for the last answers to be taken."""

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


async def serve_lines(server: Server[Any], options: InitializationOptions, source: int, sink: int) -> None:
    """Serve until the client closes the descriptor `source`, or reads no more of what we write to `sink`."""
    incoming, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, answers = anyio.create_memory_object_stream[SessionMessage](0)
    traffic = _Traffic(incoming, outgoing.clone())
    flushed = anyio.Event()
    with incoming, messages, outgoing, answers, closing(traffic):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, source, traffic)
            tasks.start_soon(_write, sink, answers, traffic, flushed, tasks.cancel_scope)
            await server.run(messages, outgoing, options)
            traffic.close()
            with anyio.move_on_after(FLUSH_S):
                await flushed.wait()
            tasks.cancel_scope.cancel()


class _Traffic:
    """Takes lines of the client: hands messages on, answers what is none, and counts what is being served."""

    def __init__(self, incoming: Incoming, outgoing: Outgoing) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._open: set[str | int] = set()
        self._answered = anyio.Event()

    async def take(self, line: bytes, *, whole: bool) -> None:
        """Take one line."""
        if not line.strip():
            return
        try:
            if not whole:
                raise too_long(line)
            message = read_message(line)
        except RpcError as error:
            await self._outgoing.send(SessionMessage(answer_of(error)))
            return
        if isinstance(message, JSONRPCRequest):
            if len(self._open) >= MAX_OPEN:
                refusal = RpcError(f"more than {MAX_OPEN} requests at once; try again later", TOO_MANY, message.id)
                await self._outgoing.send(SessionMessage(answer_of(refusal)))
                return
            self._open.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))
        await self._incoming.send(SessionMessage(message))

    def answered(self, message: JSONRPCMessage) -> None:
        """Note that a request has its answer."""
        if not isinstance(message, JSONRPCNotification | JSONRPCRequest):
            self._settle(message.id)

    async def settled(self) -> None:
        """Wait until nothing is being served."""
        while self._open:
            self._answered = anyio.Event()
            await self._answered.wait()

    def _settle(self, request_id: JsonValue) -> None:
        if isinstance(request_id, str | int):
            self._open.discard(request_id)
        self._answered.set()

    def close(self) -> None:
        """Nothing follows."""
        self._incoming.close()
        self._outgoing.close()


async def _read(source: int, traffic: _Traffic) -> None:
    """Hand lines on until the end of the input."""
    lines = LineSplitter()
    try:
        while data := await run_blocking(os.read, source, CHUNK):
            for line, whole in lines.feed(data):
                await traffic.take(line, whole=whole)
        for line, whole in lines.feed(b"\n"):
            await traffic.take(line, whole=whole)
        with anyio.move_on_after(GRACE_S):
            await traffic.settled()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # a terminal that is gone, or a server that has ended: an end as any other
    traffic.close()


async def _write(
    sink: int,
    answers: MemoryObjectReceiveStream[SessionMessage],
    traffic: _Traffic,
    flushed: anyio.Event,
    everything: anyio.CancelScope,
) -> None:
    """Write messages, one after the other; end everything if nobody reads them any more."""
    async for answer in answers:
        traffic.answered(answer.message)
        line = answer.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        try:
            await run_blocking(write_all, sink, line.encode())
        except OSError:
            everything.cancel()
            return
    flushed.set()
