"""Pass HTTP requests on to their host, one after the other, and the answers back.

Each message is read and written anew, so that both sides see the same bounds. Placeholders are replaced on the way
there, values on the way back.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import h11

from ferrule.egress.frames import Frames
from ferrule.egress.guard import Refused, Unreachable
from ferrule.egress.messages import (
    END,
    MAX_HEAD,
    BadRequest,
    Place,
    answer,
    asks_for_websocket,
    check_lines,
    passed_on,
    read_request,
    values,
)
from ferrule.egress.secrets import BadSecret, Concealer, Exchange
from ferrule.egress.streams import BLOCK, SocketStream, TlsStream, both, silent_together, turns

HEAD_S = 30.0
"""For a whole head, from its first byte: a program sends it at once."""
KEEP_S = 60.0
"""Between two requests of a connection."""
PART = 1 << 14
"""Bytes read at once of what h11 takes line by line: a block of lines would keep everything else waiting."""
DRAIN_S, DRAIN_BYTES = 1.0, 1 << 20
"""Of what is still read after a refusal."""

AnyStream = SocketStream | TlsStream
Route = Callable[[h11.Request], tuple[Place, bytes]]
"""Says where a request goes, and the path to ask for there. Raises `BadRequest`."""
Dial = Callable[[Place], Awaitable[AnyStream]]
"""Connects. Raises `Refused`, `Unreachable` and `OSError`."""
Exchanges = Callable[[Place], Exchange | None]
"""Returns what is replaced in requests and answers of a host."""


class Client:
    """What a client sends, head by head."""

    def __init__(self, stream: AnyStream, early: bytes = b"") -> None:
        self.stream = stream
        self.early = early

    async def head(self) -> bytes | None:
        """Return the next head with its empty line; None if the client has ended. Raises `BadRequest`."""
        if not self.early:
            async with asyncio.timeout(KEEP_S):
                self.early = await self.stream.read(PART)
        seen = 0
        async with asyncio.timeout(HEAD_S):
            while (at := self.early.find(END, max(seen - len(END), 0))) < 0:
                if len(self.early) > MAX_HEAD:
                    raise BadRequest("The head of the request is too long.", 431)
                check_lines(self.early, seen)
                seen = len(self.early)
                block = await self.stream.read(PART)
                if not block:
                    if self.early:
                        raise BadRequest("The request ends within its head.")
                    return None
                self.early += block
        if at > MAX_HEAD:
            raise BadRequest("The head of the request is too long.", 431)
        head, self.early = self.early[: at + len(END)], self.early[at + len(END) :]
        return head


async def relay(client: Client, route: Route, dial: Dial, exchanges: Exchanges) -> None:
    """Serve the requests of a client until it has ended, or one cannot be passed on. Raises `OSError`, `BadRequest`,
    `Refused` and `Unreachable`."""
    upstream: tuple[Place, AnyStream] | None = None
    try:
        while (head := await client.head()) is not None:
            connection, request = read_request(head)
            place, path = route(request)
            if upstream is not None and (upstream[0] != place or upstream[1].is_stale):
                upstream[1].close()
                upstream = None
            if upstream is None:
                upstream = place, await dial(place)
            one = _One(client, connection, request, upstream[1], exchanges(place))
            if not await one.pass_on(place, path):
                return
    finally:
        if upstream is not None:
            upstream[1].close()


@asynccontextmanager
async def telling(stream: AnyStream) -> AsyncIterator[None]:
    """Tell a client why its request is not passed on. Raises `OSError`."""
    try:
        yield
    except BadRequest as error:
        await refuse(stream, error.status, str(error))
    except Refused as error:
        await refuse(stream, 403, str(error))
    except Unreachable as error:
        await refuse(stream, 502, str(error))


async def refuse(stream: AnyStream, status: int, text: str) -> None:
    """Answer with a sentence, and read a little of what a client still writes: it would not see the answer else."""
    await stream.write(answer(status, text))
    await stream.end()
    left = DRAIN_BYTES
    with suppress(OSError):  # it has the answer, or does not want it
        async with asyncio.timeout(DRAIN_S):
            while left > 0 and (block := await stream.read()):
                left -= len(block)


class _One:
    """One request and its answer."""

    def __init__(
        self,
        client: Client,
        connection: h11.Connection,
        request: h11.Request,
        upstream: AnyStream,
        exchange: Exchange | None,
    ) -> None:
        self._client = client
        self._inner = connection
        self._request = request
        self._upstream = upstream
        self._outer = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._exchange = exchange
        self._begun = False

    async def pass_on(self, place: Place, path: bytes) -> bool:
        """Pass it on. Returns whether both connections can be used again. Raises `OSError` and `BadRequest`."""
        try:
            await self._upstream.write(self._outer.send(self._outgoing(place, path)) or b"")
            await self._both_ways()
        except BadSecret as error:
            raise BadRequest(f"{error}.") from error
        except (h11.RemoteProtocolError, h11.LocalProtocolError, zlib.error) as error:
            if self._begun:
                raise ConnectionError("the answer broke off") from error
            if self._inner.their_state is h11.ERROR:
                raise BadRequest("The body of the request is malformed.") from error
            raise BadRequest(f"{place.host} gave an answer that is not HTTP.", 502) from error
        except OSError as error:
            if self._begun:
                raise
            raise BadRequest(f"{place.host} closed the connection.", 502) from error
        if self._inner.our_state is h11.SWITCHED_PROTOCOL:
            await self._switch()
            return False
        self._client.early = self._inner.trailing_data[0] + self._client.early
        done = {self._inner.our_state, self._inner.their_state, self._outer.our_state, self._outer.their_state}
        return done == {h11.DONE}

    async def _both_ways(self) -> None:
        """Send the body while the answer comes, which may be there first."""
        sending, answering = asyncio.ensure_future(self._send_body()), asyncio.ensure_future(self._answer())
        try:
            await asyncio.wait([sending, answering], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
                await answering
            answering.result()
        finally:
            sending.cancel()
            answering.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)

    def _outgoing(self, place: Place, path: bytes) -> h11.Request:
        request = self._request
        headers = [(name, value) for name, value in passed_on(request.headers.raw_items()) if name.lower() != b"host"]
        headers.insert(0, (b"Host", (values(request.headers, b"host") or [place.host.encode()])[0]))
        headers += [(b"Transfer-Encoding", value) for value in values(request.headers, b"transfer-encoding")]
        websocket = asks_for_websocket(request)
        if websocket:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        if self._exchange is not None:
            left_out = (b"accept-encoding", b"range", b"if-range", b"sec-websocket-extensions")
            headers = [pair for pair in headers if pair[0].lower() not in left_out]
            headers = [*self._exchange.reveal(headers), (b"Accept-Encoding", b"identity")]
        return h11.Request(method=request.method, target=path, headers=headers)

    async def _send_body(self) -> None:
        most = PART if values(self._request.headers, b"transfer-encoding") else BLOCK
        while True:
            event = self._inner.next_event()
            if event is h11.NEED_DATA:
                if self._inner.they_are_waiting_for_100_continue:
                    await self._tell(h11.InformationalResponse(status_code=100, headers=[]))
                block = self._client.early or await self._client.stream.read(most)
                self._client.early = b""
                self._inner.receive_data(block)
            elif isinstance(event, h11.Data):
                await self._send(event)
                await turns().next()  # there may be thousands of them in a block
            elif isinstance(event, h11.EndOfMessage):
                await self._send(h11.EndOfMessage())
                return
            else:
                raise ConnectionError("the client ended within its request")

    async def _send(self, event: h11.Event) -> None:
        with suppress(OSError):  # a server that takes no more has answered, or will be missed there
            await self._upstream.write(self._outer.send(event) or b"")

    async def _answer(self) -> None:
        body = _Body(self._exchange, self._request.method == b"HEAD")
        most = PART
        while True:
            event = self._outer.next_event()
            if event is h11.NEED_DATA:
                block = await self._upstream.read(most)
                if not block and self._outer.their_state is h11.SEND_RESPONSE:
                    raise ConnectionError("the server did not answer")
                self._outer.receive_data(block)
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    await self._tell(self._switching(event))
                    return
            elif isinstance(event, h11.Response):
                most = PART if values(event.headers, b"transfer-encoding") else BLOCK
                await self._tell(body.head(event))
            elif isinstance(event, h11.Data):
                for data in body.feed(event.data):
                    await self._tell(h11.Data(data=data))
                    await turns().next()
            elif isinstance(event, h11.EndOfMessage):
                if data := body.flush():
                    await self._tell(h11.Data(data=data))
                await self._tell(h11.EndOfMessage())
                return
            else:
                raise ConnectionError("the server ended within its answer")

    async def _tell(self, event: h11.Event) -> None:
        self._begun = self._begun or isinstance(event, h11.Response)
        await self._client.stream.write(self._inner.send(event) or b"")

    def _switching(self, event: h11.InformationalResponse) -> h11.InformationalResponse:
        headers = _concealed(passed_on(event.headers.raw_items()), self._exchange)
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        return h11.InformationalResponse(status_code=101, headers=headers)

    async def _switch(self) -> None:
        """Pass the messages of a WebSocket."""
        concealer = self._exchange.concealer() if self._exchange else Concealer(())
        client, upstream, frames = self._client.stream, self._upstream, Frames()
        ours = self._inner.trailing_data[0] + self._client.early
        theirs = self._outer.trailing_data[0]

        async def there(block: bytes, moved: Callable[[], None]) -> None:
            while block or (block := await client.read()):
                await upstream.write(block)
                block = b""
                moved()
            await upstream.end()

        async def back(block: bytes, moved: Callable[[], None]) -> None:
            while block or (block := await upstream.read()):
                # A frame goes out whole: what is kept back of it, until more comes, tells how a value begins.
                told = (concealer.feed(part) + (concealer.flush() if end else b"") for part, end in frames.cut(block))
                await client.write(b"".join(told))
                block = b""
                moved()
            await client.write(concealer.flush())
            await client.end()

        async with silent_together((client, upstream)) as moved:
            await both(there(ours, moved), back(theirs, moved))


def _concealed(headers: "list[tuple[bytes, bytes]]", exchange: Exchange | None) -> "list[tuple[bytes, bytes]]":
    if exchange is None:
        return headers
    return [(exchange.conceal(name), exchange.conceal(value)) for name, value in headers]


class _Body:
    """The body of an answer, without values. Compressed ones are unpacked: a value could hide in them."""

    def __init__(self, exchange: Exchange | None, has_none: bool) -> None:
        self._exchange = exchange
        self._has_none = has_none
        self._concealer = exchange.concealer() if exchange else None
        self._unpacker: zlib._Decompress | None = None

    def head(self, response: h11.Response) -> h11.Response:
        """Return the head of the answer as the client gets it. Raises `BadRequest`."""
        headers = passed_on(response.headers.raw_items())
        reason = response.reason
        if self._exchange is not None:
            headers = _concealed(self._unpacked(headers), self._exchange)
            reason = self._exchange.conceal(reason)
        return h11.Response(status_code=response.status_code, headers=headers, reason=reason)

    def _unpacked(self, headers: "list[tuple[bytes, bytes]]") -> "list[tuple[bytes, bytes]]":
        codings = [
            coding.strip().lower() for value in values(headers, b"content-encoding") for coding in value.split(b",")
        ]
        codings = [coding for coding in codings if coding not in (b"", b"identity")]
        if not codings or self._has_none:
            return headers
        if codings not in ([b"gzip"], [b"x-gzip"], [b"deflate"]):
            raise BadRequest("The answer is compressed in a way that cannot be searched for secrets.", 502)
        self._unpacker = _unpacker()
        return [pair for pair in headers if pair[0].lower() not in (b"content-encoding", b"content-length")]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what may be passed on by now."""
        for part in [data] if self._unpacker is None else self._parts(data):
            told = part if self._concealer is None else self._concealer.feed(part)
            if told:
                yield told

    def _parts(self, data: bytes) -> Iterator[bytes]:
        """Unpack, a block at a time: a little can stand for gigabytes."""
        while data and self._unpacker is not None:
            yield self._unpacker.decompress(data, BLOCK)
            data = self._unpacker.unconsumed_tail
            if self._unpacker.eof:  # gzip may go on with another piece
                data, self._unpacker = self._unpacker.unused_data, _unpacker()

    def flush(self) -> bytes:
        """Return the rest."""
        return b"" if self._concealer is None else self._concealer.flush()


def _unpacker() -> "zlib._Decompress":
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip and zlib
