"""Serve the client at the other end of standard input and output: one JSON-RPC message a line, of bounded length.

A line that is no message gets an error and ends nothing. Standard output belongs to the protocol: whatever else is
printed in this process goes to standard error.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.models import InitializationOptions
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from ferrule.mcp.lines import MAX_MESSAGE_BYTES, LineSplitter
from ferrule.protocol.json_text import JsonValue
from ferrule.tools.tasks import run_blocking

CHUNK = 64 * 1024
"""Bytes read at once: what a pipe holds."""

MAX_OPEN = 256
"""Requests that are served at once: more than a client waits for, few enough that one which floods us costs little."""

TOO_MANY = -32_000
"""The first of JSON-RPC's codes for a server's own errors."""

GRACE_S = 1.5
"""Seconds after the end of the input in which what was asked before is still answered: scripts write their requests and
close. With the end of what runs longer it stays far below 6."""

FLUSH_S = 0.5
"""Seconds for the last answers to be taken."""

EDGE = 256
"""Bytes kept of an overlong line's beginning."""

_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[\w-]{1,64}")')

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
        if not whole:
            too_long = f"a message is longer than {MAX_MESSAGE_BYTES >> 20} MiB"
            await self._refuse(_id_at_the_beginning(line), INVALID_REQUEST, too_long)
            return
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            await self._unreadable(line, error)
            return
        if isinstance(message, JSONRPCNotification) and b'"id"' in line and _has_id(line):
            await self._refuse(None, INVALID_REQUEST, "the id of a request is a string or an integer")
            return
        if isinstance(message, JSONRPCRequest):
            if len(self._open) >= MAX_OPEN:
                await self._refuse(message.id, TOO_MANY, f"more than {MAX_OPEN} requests at once; try again later")
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

    async def _unreadable(self, line: bytes, error: ValidationError) -> None:
        """Answer a line that is no message. An answer of ours that is none is handed on as one that failed."""
        value = _decoded(line)
        named = value.get("id") if isinstance(value, dict) else None
        known = named if isinstance(named, str | int) and not isinstance(named, bool) else None
        if isinstance(value, dict) and "method" not in value and known is not None:
            failed = ErrorData(code=INVALID_REQUEST, message="the answer is no JSON-RPC answer")
            await self._incoming.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=known, error=failed)))
        elif any(fault["type"] == "json_invalid" for fault in error.errors(include_url=False, include_input=False)):
            await self._refuse(known, PARSE_ERROR, "this line is not JSON in UTF-8")
        elif isinstance(value, list):
            await self._refuse(None, INVALID_REQUEST, "batches are not served: send each message in a line of its own")
        else:
            await self._refuse(known, INVALID_REQUEST, "this line is no JSON-RPC 2.0 message")

    async def _refuse(self, request_id: str | int | None, code: int, message: str) -> None:
        error = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))
        await self._outgoing.send(SessionMessage(error))

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
            await run_blocking(_write_all, sink, line.encode())
        except OSError:
            everything.cancel()
            return
    flushed.set()


def _write_all(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def _decoded(line: bytes) -> JsonValue:
    """Return the value of a line that some read as JSON: with halves of characters, or bytes that are no UTF-8."""
    try:
        return json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _has_id(line: bytes) -> bool:
    value = _decoded(line)
    return isinstance(value, dict) and "id" in value


def _id_at_the_beginning(line: bytes) -> str | int | None:
    """Return the id of a message of which only the ends were kept, if it stands before the parameters."""
    found = _ID.search(line[:EDGE].partition(b'"params"')[0])
    return None if found is None else json.loads(found[1])


@contextmanager
def standard_streams() -> Iterator[tuple[int, int]]:
    """Yield descriptors of our own for the client's messages and our answers. Meanwhile standard input is empty, and
    standard output goes where standard error goes."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no standard error
            os.dup2(nothing, 1)
        yield source, sink
    finally:
        os.dup2(sink, 1)
        os.close(sink)
        os.close(nothing)
