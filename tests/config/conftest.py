"""A home for each test."""

from pathlib import Path

import pytest

from tests.config.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path.resolve())
