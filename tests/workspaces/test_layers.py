"""Workspaces in layers, in processes with mounts of their own, and what is left of them after a kill."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule.workspaces import Empty, Workspaces
from tests.workspaces import worker
from tests.workspaces.places import applied, contents, git, new_repository


@contextmanager
def running(*words: object, prefix: tuple[str, ...] = ()) -> "Iterator[Worker]":
    """Run a process that has entered a workspace; end it."""
    argv = [*prefix, sys.executable, worker.__file__, *map(str, words)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield Worker(child)
        finally:
            assert child.stdin is not None
            child.stdin.close()


class Worker:
    """The process; `path` is its workspace, which only it sees."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self.child = child
        self.path, self.notice = self._answer()

    def patch(self, code: str) -> str:
        """Run code, which knows `path`; return the patch."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(code) + "\n")
        self.child.stdin.flush()
        return str(self._answer())

    def _answer(self) -> Any:
        assert self.child.stdout is not None
        return json.loads(self.child.stdout.readline())


RENAME = """
import shutil, subprocess
shutil.move(path / "d", path / "e")  # by a copy, where a user's layers allow no renaming
(path / "e/new").write_text("new\\n")
subprocess.run(["git", "-C", path, "commit", "--quiet", "--all", "--message=x"], check=True)
(path / ".git/config").write_text("[core\\n")
"""


def test_a_layer_takes_what_is_changed_and_nobody_else_sees_it(tmp_path: Path) -> None:
    source = new_repository(tmp_path / "work", {"a": b"1\n", "d/x": b"x\n" * 20, "d/y": b"y\n"})
    with running(tmp_path / "scratch, with: all\\", "repository", source) as one:
        assert one.notice == "" and Path(one.path).name == "work"  # as a folder of the layer is called, too
        assert Path(one.path).is_dir() and not os.listdir(one.path)
        patch = one.patch(RENAME)
    assert "rename from d/x\n" in patch
    assert applied(patch, source) == {
        b"a": ("file", b"1\n"),
        b"e/new": ("file", b"new\n"),
        b"e/x": ("file", b"x\n" * 20),
        b"e/y": ("file", b"y\n"),
    }
    assert os.listdir(tmp_path) == ["work"]
    assert git(source, "fsck", "--strict") == b""


def test_a_whole_copy_is_a_folder_like_any_other(tmp_path: Path) -> None:
    source = new_repository(tmp_path / "source", {"a": b"1\n"})
    with running(tmp_path / "scratch", "folder", source, "whole") as one:
        assert one.notice == ""
        assert contents(Path(one.path)) == contents(source)  # which no mount hides


async def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    source = new_repository(tmp_path / "source", {"a": b"1\n"})
    scratch = tmp_path / "scratch"
    with running(scratch, "repository", source) as alive, running(scratch, "repository", source) as dead:
        dead.patch("(path / 'a').write_text('2')")
        owner = Path(dead.path).parents[2]
        assert (Path(dead.path).parents[1] / "upper/a").read_text() == "2"
        dead.child.kill()
        dead.child.wait()
        async with Workspaces.open(scratch):
            assert not owner.exists()
            assert Path(alive.path).exists()
        assert alive.patch("") == ""
        alive.child.kill()
        alive.child.wait()
    assert os.listdir(scratch / "owners")
    async with Workspaces.open(scratch) as workspaces, workspaces.enter(Empty()):
        assert [folder.name for folder in (scratch / "bases").iterdir() if folder.is_dir()] == [
            "empty-e3b0c44298fc1c14"
        ]
    assert not scratch.exists()


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="mounts something for the test")
def test_a_disk_that_takes_no_layers_gets_copies(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "place"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    mounting = f'mount -t overlay overlay -o "{options}" "{tmp_path}/place" && exec "$@"'
    place = tmp_path / "place"
    with running(place / "scratch", "empty", prefix=("unshare", "--mount", "sh", "-c", mounting, "sh")) as one:
        assert one.notice.startswith(f"workspaces are copied: {place}/scratch takes no layers (")
        assert one.patch("(path / 'a').write_text('')").startswith("diff --git a/a b/a\nnew file mode 100644\n")


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "workspaces.md"
    (program,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    new_repository(tmp_path / "project", {"a": b"1\n"})
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("diff --git a/NEW.md b/NEW.md\nnew file mode 100644\n")
    assert os.listdir(tmp_path) == ["project"]


def test_a_process_with_threads_gets_no_mounts() -> None:
    code = "import threading, ferrule.workspaces as w; e = threading.Event(); threading.Thread(target=e.wait).start()"
    words = [sys.executable, "-c", f"{code}; print(w.own_mounts().problem); e.set()"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (
        done.stdout == "workspaces are copied: this process has several threads, which cannot get mounts of their own\n"
    )
