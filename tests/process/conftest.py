import os
from collections.abc import Iterator, Mapping

import pytest

from ferrule.process.environment import child_environment
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from tests.processes import eventually, gained, held


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a child, a zombie or a thread."""
    before = held()
    yield
    assert not gained(before).children
    assert eventually(lambda: not gained(before).threads)


@pytest.fixture
def launcher() -> PlainLauncher:
    return PlainLauncher()


@pytest.fixture
def env() -> Mapping[str, str]:
    return child_environment(ShellEnvironmentPolicy(), os.environ).variables
