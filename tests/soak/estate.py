"""What belongs to the user: a home folder that nothing may change, to the last byte, mode and time."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

OWN = ".ferrule"
"""The only folder of the home that is Ferrule's."""
FILES: dict[str, tuple[str, int]] = {
    ".gitconfig": ("[user]\n\tname = Ada\n\temail = ada@example.com\n[alias]\n\tst = status\n", 0o644),
    ".config/git/ignore": ("*.swp\n", 0o644),
    ".config/git/attributes": ("*.bin binary\n", 0o644),
    ".ssh/id_ed25519": ("-----BEGIN OPENSSH PRIVATE KEY-----\nnone\n", 0o600),
    ".ssh/id_ed25519.pub": ("ssh-ed25519 AAAA ada@example.com\n", 0o644),
    ".ssh/known_hosts": ("example.com ssh-ed25519 AAAA\n", 0o600),
    ".netrc": ("machine example.com login ada password secret\n", 0o600),
    ".bashrc": ("alias ll='ls -l'\n", 0o644),
    ".profile": ("umask 022\n", 0o644),
    ".npmrc": ("fund=false\n", 0o600),
    ".local/bin/tool": ("#!/bin/sh\necho a tool of the user\n", 0o755),
    "notes/todo.md": ("- buy milk\n", 0o640),
    "notes/read only.txt": ("kept as it is\n", 0o444),
    "AGENTS.md": ("Be kind.\n", 0o644),
}
REPOSITORIES = ("project", "library")
GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip

Entry = tuple[str, int, int, str]
"""The kind and mode, the links of a file, the time of its last change in nanoseconds, and what it says."""


def git(folder: Path, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
    """Run git as a program of the user's that knows nothing of us."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **GIT}
    return subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=check)


def make_repository(folder: Path) -> None:
    """A repository with two commits, a branch, a hook, and a change that is not committed."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "src").mkdir()
    for number in range(20):
        (folder / "src" / f"file{number}.txt").write_text(f"file {number}\n" * 50)
    (folder / "run.sh").write_text("#!/bin/sh\necho run\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("src/file0.txt")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "branch", "side")
    (folder / "src" / "file1.txt").write_text("changed\n")
    git(folder, "commit", "-q", "-a", "-m", "second")
    (folder / "src" / "file2.txt").write_text("not committed\n")
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hook-ran\n")
    hook.chmod(0o755)


def make_estate(home: Path) -> None:
    """Fill the home folder."""
    for name, (text, mode) in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    (home / ".ssh").chmod(0o700)
    (home / "latest").symlink_to("notes/todo.md")
    (home / "dangling").symlink_to("/nowhere/at/all")
    os.link(home / ".bashrc", home / ".bash_login")
    for name in REPOSITORIES:
        make_repository(home / name)


def look(home: Path) -> dict[str, Entry]:
    """Every entry of the home folder, without Ferrule's own. The folder's own time changes with that one's making."""
    found: dict[str, Entry] = {}
    for folder, names, files in os.walk(home):
        if folder == str(home):
            names.remove(OWN)
        for name in (*names, *files):
            path = Path(folder, name)
            found[str(path.relative_to(home))] = _entry(path)
    return found


def _entry(path: Path) -> Entry:
    status = path.lstat()
    said = ""
    if stat.S_ISLNK(status.st_mode):
        said = os.readlink(path)
    elif stat.S_ISREG(status.st_mode):
        said = hashlib.sha256(path.read_bytes()).hexdigest()
    links = status.st_nlink if stat.S_ISREG(status.st_mode) else 0
    return oct(status.st_mode), links, status.st_mtime_ns, said


def changed(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """Say what is not as it was."""
    return [
        f"the user's {name} was {before.get(name, 'not there')} and is {after.get(name, 'gone')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
