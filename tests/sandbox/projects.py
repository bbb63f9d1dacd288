"""Repositories as users have them, and the levels at which they must stay as they are."""

import subprocess
from hashlib import sha256
from pathlib import Path

from ferrule.sandbox.plan import Level

LEVELS = [Level.NAMESPACES, Level.BWRAP, Level.LANDLOCK]
READ_ONLY = [Level.NAMESPACES, Level.BWRAP]
"""Where protected files cannot be written; at the third level a write is reported."""


def git(folder: Path, *words: str) -> str:
    """Run git as the user does, outside of the sandbox."""
    done = subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always", *words],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def every_file(folder: Path) -> dict[str, str]:
    """Path -> digest of all files below."""
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}
