"""The SDK's transport over standard input and output: lines that are no message get an error and end nothing."""

import asyncio
from contextlib import suppress

from ferrule.doors.acp.messages import answer_of, encode_message, read_message
from ferrule.pipes import lines_of
from ferrule.protocol.json_text import JsonObject
from ferrule.rpc import TOO_MANY, RpcError
from ferrule.stdio import Outbox

MAX_OPEN = 256
"""Requests that are served at once: more than an editor waits for, few enough that one which floods us costs little."""

GRACE_S = 1.5
"""Seconds after the end of the input in which what was asked before is still answered: scripts write their requests and
close. With the end of what runs longer it stays far below 6."""

HEARD = frozenset({"session/cancel"})
"""The notifications that we know; others are passed over, as JSON-RPC wants it."""


class Lines:
    """Moves messages of the descriptor `source` to the SDK, and its own into the outbox. `receive` ends with the input,
    and when nobody reads what we write."""

    def __init__(self, source: int, outbox: Outbox) -> None:
        self._messages = lines_of(source, outbox)
        self._outbox = outbox
        self._open: set[str | int] = set()
        self._answered = asyncio.Event()

    async def receive(self) -> JsonObject | None:
        """Return the next message that is one; None at the end."""
        lost = asyncio.ensure_future(self._outbox.lost.wait())
        reading: asyncio.Future[tuple[bytes, bool] | None] | None = None
        try:
            while True:
                reading = asyncio.ensure_future(anext(self._messages, None))
                await asyncio.wait([reading, lost], return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    return None
                if (found := reading.result()) is None:
                    await self._settled()
                    return None
                if found[0].strip() and (message := self._taken(*found)) is not None:
                    return message
        finally:
            lost.cancel()
            if reading is not None:
                reading.cancel()

    def _taken(self, line: bytes, whole: bool) -> JsonObject | None:
        try:
            message = read_message(line, whole=whole)
            if "method" not in message:
                return message
            if "id" not in message:
                return message if message["method"] in HEARD else None
            if message["id"] in self._open:
                raise RpcError("a request with this id is still being served", request_id=message["id"])
            if len(self._open) >= MAX_OPEN:
                text = f"more than {MAX_OPEN} requests at once; try again later"
                raise RpcError(text, TOO_MANY, message["id"])
        except RpcError as error:
            self._outbox.put(encode_message(answer_of(error)))
            return None
        self._open.add(message["id"])
        return message

    async def send(self, message: JsonObject) -> None:
        """Let a message be written."""
        if "method" not in message:
            self._open.discard(message["id"])
            if not self._open:
                self._answered.set()
        self._outbox.put(encode_message(message))

    async def _settled(self) -> None:
        """Wait a moment for the answers to what was asked before the end."""
        self._answered.clear()
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), GRACE_S)

    async def close(self) -> None:
        """Do nothing: whoever made the descriptors closes them."""
