"""What tests of the terminal interface share."""

import os
import pty
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal of 80 by 24 that this process is on, of a kind that is not known; its other end."""
    master, slave = pty.openpty()
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    for name in ("TMUX", "STY", "ZELLIJ", "NO_COLOR", "TERM_PROGRAM", "LC_TERMINAL"):
        monkeypatch.delenv(name, raising=False)
    with open(slave, closefd=False) as read, open(slave, "w", closefd=False) as write:
        monkeypatch.setattr(sys, "__stdin__", read)
        monkeypatch.setattr(sys, "__stderr__", write)
        yield master
    os.close(slave)
    os.close(master)
