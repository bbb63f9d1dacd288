"""Fixtures for tests that run many commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Place
from tests.cli.warm import Warm, WarmPlace, warm


@pytest.fixture(scope="module")
def forker() -> Iterator[Warm]:
    """The process that the commands of a module are forked from."""
    with warm() as started:
        yield started


@pytest.fixture
def cold_place(tmp_path: Path) -> Place:
    """A place whose commands start by themselves."""
    (tmp_path / "work").mkdir()
    return Place((tmp_path / "work").resolve(), tmp_path / "user" / ".ferrule")


@pytest.fixture
def place(cold_place: Place, forker: Warm) -> Place:
    """A place whose commands are forked."""
    return WarmPlace(cold_place.cwd, cold_place.home, forker)
