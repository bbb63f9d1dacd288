"""A model's server in a process of its own: Chat Completions, streamed."""

import asyncio
import json
import multiprocessing
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

Says = Callable[[str], AsyncIterator[bytes]]
"""What it streams for the model of a request: each piece is some `event`s, and is sent before the next is asked for."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(delta: dict[str, str] | None = None, reason: str | None = None, **fields: Any) -> bytes:
    """Encode an event; one without a choice where `delta` is None."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **fields}
    return _framed(json.dumps(chunk).encode())


def _framed(payload: bytes) -> bytes:
    data = b"data: %b\n\n" % payload
    return b"%x\r\n%b\r\n" % (len(data), data)


END = _framed(b"[DONE]")


@contextmanager
def upstream(says: Says) -> Iterator[str]:
    """Run the server; its base URL. `says` is a function of a module."""
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(says, sender), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{receiver.recv()}/v1"
    finally:
        process.kill()
        process.join()


def _serve(says: Says, ready: Connection) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                writer.write(HEAD)
                async for piece in says(json.loads(body)["model"]):
                    writer.write(piece)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, IndexError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())
