"""50,000 small deltas from loopback, on each wire: ours through `Model.stream`, beside a splitter with `json`.

The floor reads the socket, splits at blank lines and decodes each payload; the peer is the `openai` or the `anthropic`
SDK on the same bytes. `batched`: an HTTP chunk holds 100 events; `one by one`: each event is an HTTP chunk of its own;
`model.chunks` merges these before the HTTP parser reads them. Times are CPU time of the reader; the server is another
process.
"""

import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.measure import Row, Work, bounded, in_turns, is_installed, row
from ferrule.model.provider import open_model
from ferrule.model.stream import ModelRequest, TextDelta
from ferrule.protocol.items import Message, make_item
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import Wire

WIRES: tuple[Wire, ...] = ("responses", "chat", "messages")
DELTAS = 50_000
ROUNDS = 3
PEER_DELTAS = 5_000
"""The peer is sent so many: it takes its time."""
AIM_US = 15
AIM_PEER = 12
"""The OpenAI SDK takes at least so many times as long."""


def _named(events: list[dict[str, object]]) -> list[bytes]:
    return [b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), json.dumps(e).encode()) for e in events]


def _messages(count: int) -> list[bytes]:
    head: dict[str, object] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    head |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 1}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return _named(
        [
            {"type": "message_start", "message": head},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *[delta] * count,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": count}},
            {"type": "message_stop"},
        ]
    )


def _events(wire: Wire, count: int) -> list[bytes]:
    if wire == "messages":
        return _messages(count)
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
    return _named([{"sequence_number": n} | event for n, event in enumerate(events)])


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


async def ours(port: int, wire: Wire) -> None:
    """Read a stream of `DELTAS` deltas."""
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
    assert words == PEER_DELTAS


async def _anthropic(port: int, wire: Wire) -> None:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="x")
    words = 0
    async for event in await client.messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
    ):
        words += event.type == "content_block_delta"
    await client.close()
    assert words == PEER_DELTAS


def _serve_forever(wire: Wire, count: int, batch: int, ready: Connection) -> None:
    async def run() -> None:
        server = await _serve(_events(wire, count), batch)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def server_of(wire: Wire, count: int, batch: int) -> Iterator[int]:
    """The port of a server of `count` deltas in a process of its own; `batch` events are a chunk."""
    receiver, sender = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve_forever, args=(wire, count, batch, sender), daemon=True)
    server.start()
    yield receiver.recv()
    server.terminate()


def _rows(wire: Wire, batch: int, label: str) -> list[Row]:
    """Time all in turns, so that a busy machine slows them alike."""
    with server_of(wire, DELTAS, batch) as port, server_of(wire, PEER_DELTAS, batch) as peer_port:
        works: list[Work] = [partial(_floor, port, wire), partial(ours, port, wire)]
        counts = [DELTAS, DELTAS]
        maker, peer_work = ("anthropic", _anthropic) if wire == "messages" else ("openai", _openai)
        if is_installed(maker):
            works.append(partial(peer_work, peer_port, wire))
            counts.append(PEER_DELTAS)
        spent = asyncio.run(in_turns(works, ROUNDS, clock=time.process_time))
    floor, own, *peer = (seconds / count for seconds, count in zip(spent, counts, strict=True))
    name = f"sse {wire}, {label}, an event"
    rows = [bounded(name, own, AIM_US, "us", 1e6, floor)]
    aim = None if wire == "messages" else 1 / AIM_PEER
    return rows + [row(f"{name}, floor the {maker} SDK", own, each, aim) for each in peer]


def main() -> None:
    """Print one line a row."""
    for wire in WIRES:
        for batch, label in ((100, "batched"), (1, "one by one")):
            for line in _rows(wire, batch, label):
                print(line, flush=True)


if __name__ == "__main__":
    main()
