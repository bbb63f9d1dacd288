"""One session against a server that refuses more and more; `python -m tests.soak.refusals` runs many."""

from pathlib import Path

from tests.soak.refusals import session


async def test_a_session_goes_on_whatever_its_server_refuses(tmp_path: Path) -> None:
    assert await session(1, tmp_path) > 5
