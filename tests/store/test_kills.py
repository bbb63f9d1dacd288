"""SIGKILL at any moment: nothing is half written, and nothing that was acknowledged is lost."""

from pathlib import Path

from tests.store.kills import rounds

KILLS = 5
"""Each waits for the disk some 50 times; `python -m tests.store.kills` makes more of them."""


async def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    assert await rounds(tmp_path, KILLS, "any") >= KILLS
