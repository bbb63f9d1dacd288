"""Fixtures of the terminal's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.terminal.screen import Screen, shown


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[Screen]:
    """A session in which nothing was said."""
    async with shown(tmp_path) as screen:
        yield screen
