"""The DevTools protocol over a browser's own pipe: JSON objects, each ended by a zero byte.

Source: Chromium's `--remote-debugging-pipe`, which reads descriptor 3 and writes 4.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from ferrule.containers.screen.errors import BrowserLost, ScreenError
from ferrule.process.launcher import Child, LaunchError
from ferrule.process.run import UNDYING_GRACE
from ferrule.process.streams import Reader, Writer
from ferrule.protocol.json_text import JsonObject
from ferrule.sync import uninterrupted

MAX_MESSAGE = 96 << 20
"""Bytes of one message: a picture of the largest screen has 64 MiB and some. A longer one, such as of a page that shows
a dialog of a gigabyte, is passed over."""
SAID = 4096
"""Bytes kept of what the browser wrote last, to tell why it ended."""
CALL_S = 20.0
"""A page that has not answered by then hangs."""
FOREVER = float("inf")
ENDED = "the browser ended{}"


class Refusal(ScreenError):
    """The browser refused a command."""


class TabClosed(Refusal):
    """The tab was closed, or crashed, before it answered."""


class _Fault(msgspec.Struct, frozen=True):
    message: str
    code: int = 0


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    id: int | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    session_id: str = ""
    result: msgspec.Raw = msgspec.Raw(b"{}")
    error: _Fault | None = None


OnEvent = Callable[[str, str, JsonObject], None]
"""Hears of an event: its session (empty: the browser itself), its name and what it says."""


class DevTools:
    """The connection to one browser, which it owns."""

    def __init__(self, child: Child, on_event: OnEvent, heard: frozenset[str]) -> None:
        """`heard` are the events that `on_event` is told of: a page can make millions of the others."""
        assert child.stdin is not None and child.stderr is not None
        self._child = child
        self._on_event = on_event
        self._heard = heard
        self._waiting: dict[int, tuple[str, asyncio.Future[JsonObject]]] = {}
        self._count = 0
        self._buffer = bytearray()
        self._passing_over = False
        self._said = b""
        self._writer = Writer(child.stdin)
        self._reader = Reader(child.stdout, self._read)
        self._stderr = Reader(child.stderr, self._hear)
        self.lost = False
        self.patience = CALL_S
        self._watcher = asyncio.create_task(self._watch())

    async def call(
        self, method: str, params: JsonObject | None = None, session: str = "", timeout: float | None = None
    ) -> JsonObject:
        """Send a command and return its result. Raises `BrowserLost`, `Refusal`, and `TimeoutError`, by default after
        `patience`."""
        number = self.send(method, params, session)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[number] = session, answer
        try:
            if self.lost:
                raise self._loss()
            async with asyncio.timeout(self.patience if timeout is None else timeout):
                return await answer
        finally:
            self._waiting.pop(number, None)

    async def calls(self, commands: Sequence[tuple[str, JsonObject]], session: str) -> None:
        """Send commands at once, which the browser does in order, and wait until all are done. Raises as `call`."""
        await asyncio.gather(*(self.call(*command, session) for command in commands))

    def send(self, method: str, params: JsonObject | None = None, session: str = "") -> int:
        """Send a command whose result nobody needs."""
        self._count += 1
        message: JsonObject = {"id": self._count, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        self._writer.write(msgspec.json.encode(message) + b"\0")
        return self._count

    def forget(self, session: str) -> None:
        """Fail what waits for a session that has ended."""
        for of, answer in [*self._waiting.values()]:
            if of == session and not answer.done():
                answer.set_exception(TabClosed("the tab was closed meanwhile"))

    async def aclose(self) -> None:
        """End the browser and all that it started."""
        await self._child.kill_tree()
        await asyncio.wait({self._watcher}, timeout=UNDYING_GRACE)

    def _read(self, data: bytes) -> None:
        self._buffer += data
        if b"\0" not in data:
            if len(self._buffer) > MAX_MESSAGE:
                self._passing_over = True
                self._buffer.clear()
            return
        *whole, rest = bytes(self._buffer).split(b"\0")
        self._buffer = bytearray(rest)
        first, self._passing_over = int(self._passing_over), False
        for line in whole[first:]:
            self._take(line)

    def _take(self, line: bytes) -> None:
        message = _decode(line)
        if message.id is None:
            if message.method in self._heard:
                self._on_event(message.session_id, message.method, msgspec.json.decode(message.params))
            return
        _, answer = self._waiting.get(message.id, ("", None))
        if answer is None or answer.done():
            return
        if message.error is not None:
            answer.set_exception(Refusal(f"the browser refused: {message.error.message}"))
        else:
            answer.set_result(msgspec.json.decode(message.result))

    def _hear(self, data: bytes) -> None:
        self._said = (self._said + data)[-SAID:]

    async def _watch(self) -> None:
        try:
            with suppress(LaunchError):  # the container has ended, and the browser with it
                await self._child.wait()
        except asyncio.CancelledError:  # the event loop ends, and nothing may outlive it
            await uninterrupted(self._child.kill_tree())
            raise
        finally:
            self.lost = True
            for end in (self._reader, self._stderr, self._writer):
                end.close()
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._loss())

    def _loss(self) -> BrowserLost:
        lines = [line for line in self._said.decode(errors="replace").splitlines() if "ERROR:dbus" not in line]
        return BrowserLost(ENDED.format(f": {lines[-1]}" if lines else ""))


_decode = msgspec.json.Decoder(_Message).decode
