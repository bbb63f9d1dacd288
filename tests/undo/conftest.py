"""A turn for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.undo.turns import Turn


@pytest.fixture
def turn(tmp_path: Path) -> Iterator[Turn]:
    made = Turn(tmp_path.resolve())
    yield made
    made.snapshots.close()
