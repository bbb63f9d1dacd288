"""SIGKILL of `ferrule serve`: every response has an end, and none that was told completed is lost."""

from pathlib import Path

from tests.gateway.kills import rounds

KILLS = 2


def test_a_killed_server_loses_nothing_that_it_told_completed(tmp_path: Path) -> None:
    assert rounds(tmp_path, KILLS, "any") == []
