"""A rule for each test."""

from pathlib import Path

import pytest

from ferrule.execpolicy import Rules
from tests.execpolicy.judging import NO_PUSH, rules_of


@pytest.fixture
def no_push(tmp_path: Path) -> Rules:
    return rules_of(tmp_path, NO_PUSH)
