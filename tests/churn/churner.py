"""One program that works with git beside the sessions, and looks whether what it made stays as it made it.

Usage: churner.py FOLDER SEED. Runs until it is ended; exits with 1, and says so, when a file of its own was changed.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always", "-c", "gc.auto=0")


def main(folder: Path, seed: int) -> None:
    """Rounds without end."""
    dice = random.Random(seed)
    base = folder / "base"
    git(folder, "init", "-q", "-b", "main", "base")
    git(base, "commit", "-q", "--allow-empty", "-m", "x")
    git(base, "remote", "add", "origin", "https://example.org/x")
    git(base, "config", "core.hooksPath", ".husky")
    for number in range(10**9):
        name = f"r{number % 7}"
        shutil.rmtree(folder / name, ignore_errors=True)
        dice.choice([clone, worktree, submodule, bare, pointer])(base, folder / name)
        witness = digests(folder)
        git(base, "status", "--porcelain")
        if dice.random() < 0.3 and (folder / name).exists():
            (folder / name).rename(folder / "moved")
            (folder / "moved").rename(folder / name)
        if digests(folder) != witness:
            changed = set(digests(folder).items()) ^ set(witness.items())
            print(f"CHANGED BY SOMEBODY ELSE: {sorted(changed)[:5]}", flush=True)
            sys.exit(1)
        git(base, "worktree", "prune")


def clone(base: Path, target: Path) -> None:
    git(base.parent, "clone", "-q", str(base), str(target))
    git(target, "config", "pull.rebase", "true")
    hook = target / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)


def worktree(base: Path, target: Path) -> None:
    git(base, "worktree", "prune")
    git(base, "worktree", "add", "-q", "-f", "--detach", str(target))


def submodule(base: Path, target: Path) -> None:
    git(base.parent, "init", "-q", str(target))
    git(target, "submodule", "--quiet", "add", str(base), "deep/part")


def bare(base: Path, target: Path) -> None:
    git(base.parent, "clone", "-q", "--bare", str(base), str(target))


def pointer(base: Path, target: Path) -> None:
    git(base.parent, "init", "-q", "--separate-git-dir", str(target.with_name(f"{target.name}.store")), str(target))
    shutil.rmtree(target.with_name(f"{target.name}.store"))


def git(folder: Path, *words: str) -> None:
    subprocess.run([*GIT, *words], cwd=folder, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def digests(folder: Path) -> dict[str, str]:
    """What of a repository nobody but its user changes: settings, hooks, pointers."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            if name in ("config", ".git", "commondir") or place.endswith("/hooks"):
                path = os.path.join(place, name)
                try:
                    found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
                except FileNotFoundError:
                    found[path] = "gone"
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
