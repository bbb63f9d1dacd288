"""Repositories for the tests, and what `git apply` makes of a patch."""

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@a",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@a",
    "GIT_ALLOW_PROTOCOL": "file",
}


def git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    """Run git as a user without settings."""
    done = subprocess.run(
        ["git", "-C", str(folder), *words], input=stdin, capture_output=True, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, (words, done.stderr.decode(errors="replace"))
    return done.stdout


def new_repository(folder: Path, files: dict[str, bytes]) -> Path:
    """Make a repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    git(folder, "add", "--force", ".")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=first")
    return folder


def contents(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """Return the files and links below a folder as git sees them, but for `.git`: kind and content."""
    found: dict[bytes, tuple[str, bytes]] = {}
    pending = [os.fsencode(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                name = os.path.relpath(entry.path, os.fsencode(folder))
                if entry.name == b".git":
                    continue
                if entry.is_symlink():
                    found[name] = "link", os.readlink(entry.path)
                elif entry.is_dir():
                    pending.append(entry.path)
                elif entry.is_file():
                    program = entry.stat().st_mode & 0o100
                    found[name] = "program" if program else "file", Path(os.fsdecode(entry.path)).read_bytes()
    return found


def applied(patch: str, checkout: Path) -> dict[bytes, tuple[str, bytes]]:
    """Apply a patch to a folder; return what is in it then."""
    if patch:
        git(checkout, "apply", "--whitespace=nowarn", "-", stdin=patch.encode())
    return contents(checkout)
