"""The examples as a user runs them: each a process of its own, whose model is a script."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def environment(base_url: str | None) -> dict[str, str]:
    """The environment of an example; without a URL no model is configured."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_"))}
    return env | ({} if base_url is None else {"OPENAI_BASE_URL": base_url, "OPENAI_MODEL": "qwen3"})


def run(*args: object, base_url: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    command = [sys.executable, str(EXAMPLES / str(args[0])), *map(str, args[1:])]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment(base_url), cwd=cwd)


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a git repository with one commit on main."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "start")
    return folder


def git(folder: Path, *args: str) -> str:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, text=True).stdout
