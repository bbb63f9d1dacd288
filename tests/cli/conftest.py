from pathlib import Path

import pytest

from tests.cli.command import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "work").mkdir()
    return Place((tmp_path / "work").resolve(), tmp_path / "user" / ".ferrule")
