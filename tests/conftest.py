"""How the process of a worker is set up for all tests."""

import gc
import signal
from collections.abc import Iterator

import pytest

from tests.homes import remove_containers


def pytest_configure() -> None:
    """What a shell's background ignores, every process that a test starts would ignore too."""
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave the million objects of the collected tests out of each later garbage collection."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_containers_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove, when all tests have ended, the containers that they have left."""
    yield
    remove_containers(tmp_path_factory.getbasetemp())
