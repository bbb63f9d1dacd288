"""How the process of a worker is set up for all tests."""

import gc
import signal

import pytest


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
