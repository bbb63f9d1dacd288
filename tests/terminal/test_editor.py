"""The user's editor."""

from pathlib import Path

import pytest

from ferrule.doors.terminal.editor import edited, editor_command
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import WorkspaceWrite
from ferrule.protocol.settings import Settings


def test_the_editor_of_the_environment_changes_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(cwd=str(tmp_path), home=str(tmp_path / "home"))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sh -c 'echo more >> \"$1\"' -")
    argv = editor_command(settings)
    assert Path(argv[0]).name == "sh" and Path(argv[0]).is_absolute()
    assert edited(argv, "text\n") == "text\nmore"
    with pytest.raises(UsageError, match="ended with 3"):
        edited(["/bin/sh", "-c", "exit 3"], "text")


def test_no_editor_and_one_that_a_command_could_have_written_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "vi"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    settings = Settings(cwd=str(tmp_path), home=str(tmp_path / "home"), sandbox_policy=WorkspaceWrite())
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "")
    with pytest.raises(UsageError, match="set VISUAL or EDITOR"):
        editor_command(settings)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("EDITOR", "vi")
    with pytest.raises(UsageError, match="no command can write"):
        editor_command(settings)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("rm $0; mkfifo $0", "what the editor left is a named pipe, not a file; the message stays"),
        ("rm $0; ln -s /dev/zero $0", "what the editor left is a device, not a file"),
        ("rm $0", "left no message"),
        ("truncate -s 9M $0", "is larger than 8192 KiB"),
    ],
)
def test_what_an_editor_leaves_is_read_only_if_it_is_a_text(script: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        edited(["/bin/sh", "-c", script], "text")
