"""What a session does with what its server says of itself."""

import json
from pathlib import Path

import pytest

from ferrule import Agent
from ferrule.history.compaction import user_message
from ferrule.model import abilities
from ferrule.protocol.content import OutputText
from ferrule.protocol.items import Message, make_item
from ferrule.session.session import Session
from tests.own_server import llama_cpp, ollama, own_server


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "LONGEST_WAIT_S", 30.0)


def window(session: Session) -> int | None:
    return session._dialogue.check.window


async def test_the_servers_window_counts_unless_the_user_says_another_one(tmp_path: Path) -> None:
    with own_server(llama_cpp(window=24_576)) as server:
        async with await Agent("m", base_url=server.base_url, cwd=tmp_path).open() as session:
            await session.run("go")
            assert window(session) == 24_576
            await session.run("again")
            assert server.asked.count("GET /props") == 1, "asked once a session"


async def test_a_long_history_waits_for_the_servers_window_and_is_compacted_for_it(tmp_path: Path) -> None:
    long = [user_message("x" * 100_000), make_item(Message(role="assistant", content=(OutputText("seen"),)))]
    with own_server(llama_cpp(window=24_576), answers=["SUMMED UP"]) as server:
        async with await Agent("m", base_url=server.base_url, cwd=tmp_path).open() as session:
            session.history.extend(long)
            await session.run("go")
    assert server.asked.index("GET /props") < server.asked.index("POST /v1/chat/completions")
    assert all(len(json.dumps(body)) < 24_576 * 4 for body in server.bodies)
    assert "SUMMED UP" in json.dumps(server.bodies[-1])


async def test_a_window_that_is_only_a_default_or_holds_no_tools_is_told_and_not_counted_on(tmp_path: Path) -> None:
    for routes in (ollama(capabilities=["tools"]), llama_cpp(window=2_048)):
        with own_server(routes) as server:
            async with await Agent("m", base_url=server.base_url, cwd=tmp_path).open() as session:
                before = window(session)
                await session.run("go")
                assert window(session) == before


async def test_a_session_that_ends_at_once_leaves_no_question_behind(tmp_path: Path) -> None:
    with own_server(held=["GET /props", "POST /v1/chat/completions"]) as server:
        session = await Agent("m", base_url=server.base_url, cwd=tmp_path).open()
        await session.aclose()
        assert server.asked == []
