"""Stages for the tests of sessions."""

from pathlib import Path

import pytest

from tests.session.children import Stage
from tests.session.windows import Dock


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def dock(tmp_path: Path) -> Dock:
    return Dock(tmp_path)
