"""50,000 small deltas from loopback, on both wires: ours through `Model.stream`, beside a splitter with `json`.

The floor reads the socket, splits at blank lines and decodes each payload; the peer is the `openai` SDK on the same
bytes. `batched`: an HTTP chunk holds 100 events; `one by one`: each event is an HTTP chunk of its own, which
costs every client of httpx2 about 7 us. Times are CPU time of the reader; the server is another process.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

from ferrule.model.provider import open_model
from ferrule.model.stream import ModelRequest, TextDelta
from ferrule.protocol.items import Message, make_item
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import Wire

DELTAS = 50_000
ROUNDS = 3
AIM_US = 15
AIM_PEER = 12


def _events(wire: Wire, count: int) -> list[bytes]:
    if wire == "chat":
        head: dict[str, object] = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1764000000,
            "model": "m",
        }
        chunks = [head | {"choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}]}] * count
        end = head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        return [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in [*chunks, end]] + [b"data: [DONE]\n\n"]
    response: dict[str, object] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1764000000,
        "model": "m",
        "output": [],
    }
    response |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "in_progress"}
    item: dict[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": " word" * count, "annotations": []}
    whole = item | {"status": "completed", "content": [part]}
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({**delta, "sequence_number": n, "delta": " word", "logprobs": []} for n in range(count)),
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": response | {"status": "completed", "output": [whole]}},
    ]
    numbered = [{"sequence_number": n} | event for n, event in enumerate(events)]
    return [b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), json.dumps(e).encode()) for e in numbered]


async def _serve(events: list[bytes], batch: int) -> asyncio.Server:
    chunks = [b"".join(events[at : at + batch]) for at in range(0, len(events), batch)]
    framed = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks] + [b"0\r\n\r\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for chunk in framed:
            writer.write(chunk)
            await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


async def _floor(port: int, wire: Wire) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    rest, words = b"", 0
    while chunk := await reader.read(65536):
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            payload = block[block.index(b"data: ") + 6 :]
            if payload != b"[DONE]":
                event = json.loads(payload)
                words += "delta" in event or "choices" in event
    writer.close()
    assert words >= DELTAS


async def _ours(port: int, wire: Wire) -> None:
    model = open_model(ProviderSettings(name="bench", base_url=f"http://127.0.0.1:{port}/v1"), wire=wire)
    asked = ModelRequest(model="m", instructions="", items=(make_item(Message(role="user", content="hi")),))
    words = 0
    async for event in model.stream(asked):
        words += isinstance(event, TextDelta)
    await model.aclose()
    assert words == DELTAS


async def _openai(port: int, wire: Wire) -> None:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x")
    words = 0
    if wire == "chat":
        async for chunk in await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        ):
            words += bool(chunk.choices[0].delta.content)
    else:
        async for event in await client.responses.create(model="m", input="hi", stream=True):
            words += event.type == "response.output_text.delta"
    await client.close()
    assert words == DELTAS


def _serve_forever(wire: Wire, batch: int, ready: Connection) -> None:
    async def run() -> None:
        server = await _serve(_events(wire, DELTAS), batch)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def _cost(read: Callable[[int, Wire], Awaitable[None]], port: int, wire: Wire) -> float:
    """Microseconds of CPU time an event."""

    async def run() -> float:
        start = time.process_time()
        await read(port, wire)
        return time.process_time() - start

    return asyncio.run(run()) / DELTAS * 1e6


def _row(wire: Wire, batch: int, label: str, *, peer: bool) -> str:
    receiver, sender = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve_forever, args=(wire, batch, sender), daemon=True)
    server.start()
    port = receiver.recv()
    readers = {"floor": _floor, "ours": _ours} | ({"openai": _openai} if peer else {})
    times: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(ROUNDS):
        for name, read in readers.items():
            if name != "openai" or number == 0:
                times[name].append(_cost(read, port, wire))
    server.terminate()
    cost = {name: statistics.median(values) for name, values in times.items()}
    line = (
        f"sse {wire} {label}: ours {cost['ours']:.1f} us an event, floor {cost['floor']:.1f} us, "
        f"ratio {cost['ours'] / cost['floor']:.1f} (aim {AIM_US} us)"
    )
    if peer:
        line += f"; openai SDK {cost['openai']:.0f} us, {cost['openai'] / cost['ours']:.1f}x ours (aim {AIM_PEER}x)"
    return line


def main() -> None:
    """Print one line a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-peer", action="store_true", help="leave out the openai SDK, which takes a minute")
    peer = not parser.parse_args().no_peer
    for wire in ("responses", "chat"):
        print(_row(wire, 100, "batched", peer=peer), flush=True)
        print(_row(wire, 1, "one by one", peer=peer), flush=True)


if __name__ == "__main__":
    main()
