"""Stages for the tests of sessions."""

from pathlib import Path

import pytest

from tests.session.children import Stage
from tests.session.conversations import Place
from tests.session.windows import Dock


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def dock(tmp_path: Path) -> Dock:
    return Dock(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
