"""Programs that tests use and that are not Ferrule's own."""

import os
import shutil
import subprocess

import pytest

REQUIRED = frozenset(os.environ.get("FERRULE_REQUIRE_PROGRAMS", "").split())
"""Programs whose absence fails their tests: where `.ci/run` has installed them."""


def need(*programs: str) -> None:
    """Skip the test where one of these is missing, or fail it where they are required."""
    missing = [program for program in programs if not is_usable(program)]
    if missing:
        text = f"not installed for this HOME: {', '.join(missing)}"
        if REQUIRED.isdisjoint(missing):
            pytest.skip(text)
        pytest.fail(text)


def is_usable(program: str) -> bool:
    """Whether the program is there and runs: rustup's proxies do not with an empty HOME."""
    ask = {"go": "version", "tmux": "-V"}.get(program, "--version")
    if shutil.which(program) is None:
        return False
    return subprocess.run([program, ask], check=False, capture_output=True).returncode == 0
