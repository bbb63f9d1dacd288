"""`ferrule memory` as a command."""

import json
from pathlib import Path

import pytest

from ferrule.cli.main import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_add_list_remove(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "add", "Use tabs.\nAlways.", "--trace", "Makefiles"]) == 0
    memory_id = capsys.readouterr().out.strip()
    assert main(["memory", "list"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(memory_id) and shown.endswith("  Use tabs.\n")
    assert main(["memory", "list", "--json"]) == 0
    memory = json.loads(capsys.readouterr().out)
    assert (memory["summary"], memory["trace_summary"]) == ("Use tabs.\nAlways.", "Makefiles")
    assert main(["memory", "add", "Use spaces.", "--id", memory_id]) == 0
    assert main(["memory", "remove", memory_id]) == 0
    capsys.readouterr()
    assert main(["memory", "list"]) == 0
    assert capsys.readouterr().out == "nothing is remembered; `ferrule memory add TEXT` adds something\n"
    assert main(["memory", "list", "--json"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [[], ["forget"], ["add"], ["add", " "], ["add", "x", "--id", "y"], ["remove", "x"], ["remove", "0" * 32]],
)
def test_wrong_usage(arguments: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not home.exists()
