"""The user's editor, for a long message."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from ferrule.doors.terminal.keyboard import LONGEST_PASTE
from ferrule.lookup import locate
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.reading import Unreadable, read_file
from ferrule.sandbox.policy import command_places

NO_EDITOR = "set VISUAL or EDITOR to the editor that you use"


def editor_command(settings: Settings) -> list[str]:
    """Return the user's editor as argv. Raises `UsageError` where none is set or found in a safe place."""
    set_as = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(set_as)
    except ValueError as error:
        raise UsageError(f"the editor {set_as} cannot be read as a command: {error}; {NO_EDITOR}") from error
    if not words:
        raise UsageError(NO_EDITOR)
    places = command_places(settings.sandbox_policy, settings.cwd, settings.home)
    program = locate(words[0], os.environ.get("PATH"), places).path
    if program is None:
        raise UsageError(f"the editor {words[0]} was not found where no command can write; {NO_EDITOR}")
    return [program, *words[1:]]


def edited(argv: list[str], text: str) -> str:
    """Let the user edit a text in a file of its own, and return it. Blocking. Raises `UsageError`."""
    with tempfile.TemporaryDirectory(prefix="ferrule-") as folder:
        file = Path(folder, "message.md")
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*argv, str(file)], check=False).returncode
            edited_text = read_file(file, LONGEST_PASTE).decode(errors="replace")
        except FileNotFoundError as error:
            raise UsageError("the editor left no message; it stays as it was") from error
        except OSError as error:
            raise UsageError(f"the editor cannot be started: {error}; the message stays as it was") from error
        except Unreadable as problem:
            raise UsageError(f"what the editor left {problem}; the message stays as it was") from problem
        if code:
            raise UsageError(f"the editor ended with {code}; the message stays as it was")
        return edited_text.rstrip("\n")
