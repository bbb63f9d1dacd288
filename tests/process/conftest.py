import os
import threading
from collections.abc import Iterator, Mapping

import pytest

from ferrule.process.environment import child_environment
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from tests.processes import children, eventually


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a child, a zombie or a thread; servers that the worker's tests share may run on."""
    threads, before = threading.active_count(), children()
    yield
    assert set(children()) <= set(before)
    assert eventually(lambda: threading.active_count() == threads)


@pytest.fixture
def launcher() -> PlainLauncher:
    return PlainLauncher()


@pytest.fixture
def env() -> Mapping[str, str]:
    return child_environment(ShellEnvironmentPolicy(), os.environ).variables
