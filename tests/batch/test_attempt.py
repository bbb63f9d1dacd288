"""What the tasks of a worker share."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule.batch.attempt import Attempts
from ferrule.batch.gate import Gate
from ferrule.batch.messages import Setup
from ferrule.batch.tasks import read_task
from ferrule.protocol.permissions import InContainer, ReadOnly, SandboxPolicy, WorkspaceWrite
from ferrule.protocol.settings import Settings
from ferrule.session.agent import Agent

ANSWER = b'{"default_generation_settings": {"n_ctx": 50000}}'
NOTHING: Any = None


def setup_of(settings: Settings) -> Setup:
    return Setup(settings=settings, api_key=None, slots=9, scratch="/", rollouts="/", kept_rollouts=None, images=False)


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        (b'"sandbox": "read-only"', ReadOnly()),
        (b'"sandbox": "container"', InContainer(writable_roots=("/data",))),
        (b'"image": "box"', InContainer(image="box", writable_roots=("/data",))),
        (b'"sandbox": "workspace-write"', WorkspaceWrite(writable_roots=("/data",))),
    ],
)
async def test_what_a_task_says_counts_and_the_rest_is_the_batchs(said: bytes, policy: SandboxPolicy) -> None:
    usual = Agent("usual", tools=["update_plan"], base_url="http://127.0.0.1:9/v1", wire="chat", max_turns=9).settings
    usual = msgspec.structs.replace(
        usual,
        sandbox_policy=WorkspaceWrite(writable_roots=("/data",)),
        model=msgspec.structs.replace(usual.model, context_window=1000),
    )
    own = b'{"id": 1, "prompt": "x", "model": "m", "tools": ["shell"], "max_turns": 3, "max_tokens": 5, %b}' % said
    async with Attempts(setup_of(usual), NOTHING, Gate(9, NOTHING)) as attempts:
        found = await attempts._settings(read_task(own, "/"), Path("/place"))
        assert (found.cwd, found.model.model, found.tools, found.sandbox_policy) == ("/place", "m", ("shell",), policy)
        assert (found.max_turns, found.run_token_budget) == (3, 5)
        found = await attempts._settings(read_task(b'{"id": 1, "prompt": "x"}', "/"), Path("/place"))
    assert (found.model.model, found.tools, found.max_turns) == ("usual", usual.tools, 9)
    assert found.sandbox_policy == usual.sandbox_policy


async def test_the_window_of_a_model_is_asked_once_though_all_tasks_begin_at_once() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b" HTTP")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = Agent("m", base_url=f"http://127.0.0.1:{port}/v1", wire="chat").settings
        async with Attempts(setup_of(settings), NOTHING, Gate(9, NOTHING)) as attempts:
            windows = await asyncio.gather(*(attempts._window("m") for _ in range(9)))
    assert windows == [50000] * 9
    assert asked == [b"GET /props"]
