"""What the tasks of a worker share."""

import asyncio
from typing import Any

from ferrule.batch.attempt import Attempts
from ferrule.batch.gate import Gate
from ferrule.batch.messages import Setup
from ferrule.session.agent import Agent

ANSWER = b'{"default_generation_settings": {"n_ctx": 50000}}'


async def test_the_window_of_a_model_is_asked_once_though_all_tasks_begin_at_once() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b" HTTP")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER))
        writer.close()
        await writer.wait_closed()

    nothing: Any = None
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = Agent("m", base_url=f"http://127.0.0.1:{port}/v1", wire="chat").settings
        setup = Setup(
            settings=settings, api_key=None, slots=9, scratch="/", rollouts="/", kept_rollouts=None, images=False
        )
        async with Attempts(setup, nothing, Gate(9, nothing)) as attempts:
            windows = await asyncio.gather(*(attempts._window("m") for _ in range(9)))
    assert windows == [50000] * 9
    assert asked == [b"GET /props"]
