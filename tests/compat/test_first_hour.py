"""The quick steps of `scripts/first_hour`, with the command that is installed here instead of a fresh clone's."""

import argparse
import shutil
import sys
from pathlib import Path

import pytest

from tests.compat.first_hour import Hour, Skipped, local_model, mcp_server, own_task, program


def test_an_own_task_a_resume_and_a_program_say_something_and_work(tmp_path: Path) -> None:
    hour = Hour(tmp_path.resolve())
    hour.clone = Path(sys.prefix).parent
    hour.work.mkdir()
    own_task(hour, argparse.Namespace())
    program(hour, argparse.Namespace())
    assert [name for name, _, _ in hour.steps] == [
        "ferrule exec", "ferrule exec resume --last", "a program of ten lines",
    ]  # fmt: skip
    assert all(first < took for _, first, took in hour.steps)


def test_steps_that_need_more_are_skipped_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Skipped, match=r"install Node\.js"):
        mcp_server(Hour(tmp_path), argparse.Namespace())
    with pytest.raises(Skipped, match=r"--local MODEL\.gguf"):
        local_model(Hour(tmp_path), argparse.Namespace(local=None))
