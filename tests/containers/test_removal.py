"""What commands leave on disk is removed, whatever they made of it."""

import os
import subprocess
from pathlib import Path

from ferrule.containers.removal import remove_tree

HOSTILE = r"""
mkdir -p a/b/c "new
line" .hidden; touch a/b/file .hidden/x $'\xff\xfe' -- -rf; ln -s / away; ln -s nowhere dangling; mkfifo pipe
chmod 000 a/b/c a/b a; mkdir shut; touch shut/file; chmod 555 shut
"""
DEEP = 1100
NAME = "a folder"


def test_a_hostile_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    top = tmp_path / "top"
    top.mkdir()
    subprocess.run(["bash", "-c", HOSTILE], cwd=top, check=True)
    (top / "link").symlink_to(outside)
    remove_tree(top)
    assert not top.exists()
    assert (outside / "file").exists()
    remove_tree(top)


def test_what_an_attempt_before_has_moved(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for name in ("a/b/c", ".removing-0/d", ".removing-1/e"):
        (top / name).mkdir(parents=True)
    remove_tree(top)
    assert not top.exists()


def test_a_deep_folder(tmp_path: Path) -> None:
    """Deeper than any path may be long, and than Python calls itself."""
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir(NAME, dir_fd=here)
        below = os.open(NAME, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(top)
    assert not top.exists()
