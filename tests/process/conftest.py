"""A launcher, an environment and a Python kernel for each test, and a look at what it leaves."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from ferrule.process import python_kernel
from ferrule.process.environment import child_environment
from ferrule.process.kernel import Kernel
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from tests.process.cells import started
from tests.processes import DEADLINE, eventually, gained, held


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


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time to interrupt a cell."""
    monkeypatch.setattr(python_kernel, "INTERRUPT_GRACE", DEADLINE)


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    kernel = await started(tmp_path)
    yield kernel
    await kernel.kill()
