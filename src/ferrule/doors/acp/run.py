"""Run the door: one client over standard input and output, until it closes them."""

import asyncio
from contextlib import suppress
from typing import Any, cast

from acp.agent import AgentSideConnection
from acp.meta import CLIENT_METHODS
from acp.schema import SessionNotification
from acp.utils import serialize_params
from pydantic import BaseModel

from ferrule.doors.acp.agent import Agent, Programs
from ferrule.doors.acp.lines import Lines
from ferrule.doors.acp.messages import encode_message
from ferrule.pipes import send_waiting
from ferrule.stdio import Outbox, standard_streams
from ferrule.tools.tasks import end_tasks

FLUSH_S = 0.5
"""Seconds for the last messages to be taken."""


async def serve_pipes(programs: Programs) -> None:
    """Serve the client until the end of its input, or until it reads no more; then end all that runs."""
    with standard_streams() as (source, sink):
        await serve(programs, source, sink)


async def serve(programs: Programs, source: int, sink: int) -> None:
    """Serve the client at two descriptors. See `serve_pipes`."""
    outbox = Outbox()
    lines = Lines(source, outbox)

    def show(session_id: str, update: BaseModel) -> None:
        note = SessionNotification(session_id=session_id, update=cast(Any, update))
        method = CLIENT_METHODS["session_update"]
        outbox.put(encode_message({"jsonrpc": "2.0", "method": method, "params": serialize_params(note)}))

    agent = Agent(programs, show, outbox.room)
    writing = asyncio.create_task(send_waiting(outbox, sink))
    connection = AgentSideConnection(cast(Any, agent), lines, listening=False, use_unstable_protocol=True)
    try:
        await connection.listen()
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError  # a signal, which the SDK takes for the end of the input
    finally:
        try:
            await connection.close()
        finally:
            await agent.aclose()
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await outbox.flushed()
            await end_tasks([writing])
