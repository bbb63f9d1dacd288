"""SIGKILL at any moment: nothing is half written, and nothing that was acknowledged is lost."""

from pathlib import Path

from tests.store.kills import rounds

KILLS = 10
"""Each takes 0.3 s, most of it waiting for the disk; `python -m tests.store.kills` makes more."""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    assert rounds(tmp_path, KILLS, "any") >= KILLS
