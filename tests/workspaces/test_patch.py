"""Patches: `git apply` makes a fresh checkout of the base into what the task left."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ferrule.workspaces import Folder, Repository, Workspaces
from ferrule.workspaces.scratch import Scratch
from tests.workspaces.places import applied, contents, git, new_repository

BINARY = bytes(range(256)) * 8
LATIN = "Größe\n".encode("latin-1") * 3
FILES = {
    "text": b"".join(b"line %d\n" % number for number in range(40)),
    "binary": BINARY,
    "empty": b"",
    "no newline": b"a\nb",
    "crlf": b"a\r\nb\r\nc\r\n",
    "mixed": b"a\r\nb\nc\r",
    "latin": LATIN,
    "program": b"#!/bin/sh\n",
    "folder/one": b"1\n" * 20,
    "folder/two": b"2\n" * 20,
    "folder/deeper/three": b"3\n" * 20,
    " blank ": b"x\n",
    'quote"\\back\t': b"x\n",
    "new\nline": b"x\n",
    "größe/日本語": b"x\n",
    os.fsdecode(b"not\xff utf-8\xfe"): b"x\n",
    "-dash": b"x\n",
    "a b/c d": b"x\n",
    "link": b"",
}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that stays open, so that each base is made once."""
    held = Scratch(tmp_path_factory.mktemp("patches") / "scratch")
    held.open()
    yield held.folder
    held.close()
    assert not held.folder.exists()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patches") / "source"
    new_repository(folder, FILES)
    (folder / "program").chmod(0o755)
    (folder / "link").unlink()
    (folder / "link").symlink_to("text")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=second")
    return folder


def _all(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def on_all(top: Path) -> None:
        for path in sorted(top.rglob("*")):
            if path.is_file() and not path.is_symlink() and ".git" not in path.parts:
                change(path)

    return on_all


def _closed(path: Path) -> None:
    path.write_bytes(b"new\n")
    path.chmod(0)


def _linked(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _removed(top: Path) -> None:
    for path in top.iterdir():
        if path.name == ".git":
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _as_folder(top: Path) -> None:
    for name in ("text", "link", "folder/one"):
        (top / name).unlink()
        (top / name / "in").mkdir(parents=True)
        (top / name / "in" / "text").write_bytes(FILES["text"])


def _as_file(top: Path) -> None:
    shutil.move(top / "folder/one", top / "kept")
    shutil.rmtree(top / "folder")
    shutil.move(top / "kept", top / "folder")
    shutil.rmtree(top / "a b")
    (top / "a b").symlink_to("folder")


def _special(top: Path) -> None:
    os.mkfifo(top / "pipe")
    (top / "nothing/here").mkdir(parents=True)
    (top / "new empty").touch()
    (top / "new program").touch(0o755)
    (top / "dangling").symlink_to("not there\n")
    (top / "bäd").symlink_to(b"\xff\xfe")
    (top / "text").unlink()
    os.mkfifo(top / "text")


def _renamed(top: Path) -> None:
    (top / "folder").rename(top / "moved")
    (top / "moved/one").write_bytes(FILES["folder/one"] + b"more\n")
    (top / "text").rename(top / "größe/new\tname\n")
    (top / "binary").rename(top / "folder")
    (top / "latin").rename(top / "latin2")
    with (top / "latin2").open("ab") as file:
        file.write(LATIN)


CHANGES: dict[str, Callable[[Path], object]] = {
    "append": _all(lambda path: path.write_bytes(path.read_bytes() + b"more\n")),
    "prepend": _all(lambda path: path.write_bytes(b"more\n" + path.read_bytes())),
    "empty": _all(lambda path: path.write_bytes(b"")),
    "binary": _all(lambda path: path.write_bytes(BINARY[::-1])),
    "no newline": _all(lambda path: path.write_bytes(path.read_bytes().rstrip(b"\n"))),
    "latin": _all(lambda path: path.write_bytes(path.read_bytes() + LATIN)),
    "late nul": _all(lambda path: path.write_bytes(b"x" * 9000 + b"\n\0\n" + path.read_bytes())),
    "modes": _all(lambda path: path.chmod(path.stat().st_mode ^ 0o111)),
    "closed": _all(_closed),
    "links": _all(_linked),
    "all removed": _removed,
    "files become folders": _as_folder,
    "folders become files": _as_file,
    "renamed": _renamed,
    "what git does not keep": _special,
}


@pytest.mark.parametrize("name", CHANGES)
async def test_git_apply_makes_what_the_task_left(name: str, source: Path, scratch: Path, tmp_path: Path) -> None:
    async with Workspaces.open(scratch) as workspaces, workspaces.enter(Repository(str(source))) as one:
        assert contents(one.path) == contents(source)
        CHANGES[name](one.path)
        patch = await one.patch()
        expected = contents(one.path)
    fresh = tmp_path / "fresh"
    git(tmp_path, "clone", "--quiet", str(source), str(fresh))
    assert patch.endswith("\n")
    assert applied(patch, fresh) == expected


ATTRIBUTES = b"* text=auto filter=evil diff=evil merge=evil ident working-tree-encoding=UTF-16\n*.bin -diff\n"
EVIL = """
[filter "evil"]
\tclean = touch {marker}; cat
\tsmudge = touch {marker}; cat
\trequired = true
[diff "evil"]
\ttextconv = touch {marker}; cat
\tcommand = touch {marker}; echo
[diff]
\texternal = touch {marker}; echo
\tnoprefix = true
[core]
\tfsmonitor = touch {marker}
\thooksPath = hooks
\tattributesFile = evil
\tworktree = /
\tquotePath = false
[include]
\tpath = /dev/tty
"""


def _with_settings(top: Path) -> None:
    (top / ".gitattributes").write_bytes(ATTRIBUTES)
    (top / "folder/.gitattributes").write_bytes(b"* binary\n")
    (top / ".git/info").mkdir(exist_ok=True)
    (top / ".git/info/attributes").write_bytes(ATTRIBUTES)
    (top / ".git/info/exclude").write_text("*\n")
    (top / ".git/config").write_text(EVIL.format(marker=top.parents[3] / "marker"))
    (top / ".git/hooks").mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction"):
        (top / ".git/hooks" / name).write_text(f"#!/bin/sh\ntouch {top.parents[3]}/marker\n")
        (top / ".git/hooks" / name).chmod(0o755)


def _without_git(top: Path) -> None:
    shutil.rmtree(top / ".git")


def _git_elsewhere(top: Path) -> None:
    shutil.rmtree(top / ".git")
    (top / ".git").write_text("gitdir: /nonexistent\n")


def _git_a_pipe(top: Path) -> None:
    shutil.rmtree(top / ".git")
    os.mkfifo(top / ".git")


def _committed(top: Path) -> None:
    git(top, "checkout", "--quiet", "-b", "other")
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--message=mine")
    git(top, "tag", "main2")


def _another_history(top: Path) -> None:
    git(top, "checkout", "--quiet", "--orphan", "fresh")
    git(top, "commit", "--quiet", "--all", "--message=all anew")
    git(top, "branch", "-D", "main")
    git(top, "reflog", "expire", "--expire=now", "--all")
    git(top, "gc", "--quiet", "--prune=now")


def _rebasing(top: Path) -> None:
    (top / "program").write_bytes(b"mine\n")
    git(top, "commit", "--quiet", "--all", "--message=mine")
    git(top, "checkout", "--quiet", "-b", "other", "main~1")
    (top / "program").write_bytes(b"theirs\n")
    git(top, "commit", "--quiet", "--all", "--message=theirs")
    words = ["git", "-C", str(top), "-c", "user.name=a", "-c", "user.email=a@a", "rebase", "main"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1
    assert b"<<<<<<<" in (top / "program").read_bytes()


def _nested(top: Path) -> None:
    new_repository(top / "nested", {"inside": b"x\n"})
    new_repository(top / "folder/two.git", {"inside": b"y\n"})
    (top / "bare").mkdir()
    git(top / "bare", "init", "--quiet", "--bare")
    (top / ".GIT").mkdir()
    (top / ".GIT/never").touch()


def _what_git_refuses(top: Path) -> None:
    for name in (".GIT", ".git. .", "git~1", "folder/GIT~1:x", "folder/a\\.git"):
        (top / name).touch()
    (top / ".gitmodules").symlink_to("text")
    (top / "folder/gitmod~1").symlink_to("text")


STATES = [
    _with_settings,
    _without_git,
    _git_elsewhere,
    _git_a_pipe,
    _committed,
    _another_history,
    _rebasing,
    _nested,
    _what_git_refuses,
]
REFUSED = re.compile(rb"\.git/|.*(\.git|git~1|:x|\. \.|\.gitmodules|gitmod~1)$", re.IGNORECASE)


@pytest.mark.parametrize("state", STATES)
async def test_nothing_that_the_task_does_to_git_counts(
    state: Callable[[Path], None], source: Path, scratch: Path, tmp_path: Path
) -> None:
    async with Workspaces.open(scratch) as workspaces, workspaces.enter(Repository(str(source))) as one:
        (one.path / "text").write_bytes(b"changed $Id$\r\n")
        (one.path / "folder/new.bin").write_bytes(b"new\n")
        state(one.path)
        patch = await one.patch()
        expected = contents(one.path)
        expected = {path: what for path, what in expected.items() if not REFUSED.match(path)}
    fresh = tmp_path / "fresh"
    git(tmp_path, "clone", "--quiet", str(source), str(fresh))
    assert applied(patch, fresh) == expected
    assert not (tmp_path / "marker").exists()


CONVERTED = {
    ".gitattributes": b"""*.txt text eol=crlf
*.id ident
*.u16 working-tree-encoding=UTF-16LE text
*.lfs filter=lfs -text
""",
    "auto/.gitattributes": b"* text=auto\n",
    "a.txt": b"1\n2\n3\n",
    "a.id": b"$Id$\n1\n2\n",
    "a.u16": "ä\n1\n".encode("utf-16-le"),
    "a.lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "auto/crlf": b"",
}


async def test_contents_are_those_that_git_keeps_by_the_attributes_of_the_base(scratch: Path, tmp_path: Path) -> None:
    source = new_repository(tmp_path / "source", CONVERTED)
    blob = git(source, "hash-object", "-w", "--stdin", stdin=b"1\r\n2\r\n").decode().strip()
    git(source, "update-index", "--cacheinfo", f"100644,{blob},auto/crlf")
    git(source, "commit", "--quiet", "--message=with CRLF")
    git(tmp_path, "clone", "--quiet", str(source), "fresh")
    fresh = tmp_path / "fresh"
    async with Workspaces.open(scratch) as workspaces, workspaces.enter(Repository(str(source))) as one:
        assert contents(one.path) == contents(fresh)
        assert (one.path / "a.txt").read_bytes() == b"1\r\n2\r\n3\r\n"
        assert await one.patch() == ""
        (one.path / "a.txt").write_bytes(b"1\r\n2\r\n4\r\n")
        (one.path / "b.txt").write_bytes(b"1\r\n")
        (one.path / "a.id").write_bytes((one.path / "a.id").read_bytes() + b"3\n")
        (one.path / "a.u16").write_bytes("ä\n2\n".encode("utf-16-le"))
        (one.path / "b.u16").write_bytes(b"\xd8")
        (one.path / "a.lfs").write_bytes(b"real data\r\n")
        (one.path / "auto/crlf").write_bytes(b"1\r\n3\r\n")
        (one.path / "auto/.gitattributes").write_bytes(b"* working-tree-encoding=UTF-16\n")
        (one.path / ".gitattributes").unlink()
        (one.path / ".gitattributes").mkdir()
        (one.path / ".gitattributes/a.txt").write_bytes(b"x\r\n")
        patch = await one.patch()
        expected = contents(one.path)
    for line in ("-3\n+4\n", "+3\n", "-1\n+2\n", "-2\r\n+3\r\n", "+real data\r\n"):
        assert line in patch
    assert "-2\n" not in patch
    assert "+1\n" in patch
    found = applied(patch, fresh)
    theirs, ours = found.pop(b"a.id")[1].partition(b"\n"), expected.pop(b"a.id")[1].partition(b"\n")
    assert found == expected
    assert theirs[2] == ours[2]  # before it stands `$Id: NAME $`, which git writes at each checkout


async def test_submodules_stay_and_what_lies_in_them_is_files(scratch: Path, tmp_path: Path) -> None:
    inner = new_repository(tmp_path / "inner", {"x": b"x\n"})
    source = new_repository(tmp_path / "source", {"a": b"1\n"})
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "commit", "--quiet", "--message=submodule")
    async with Workspaces.open(scratch) as workspaces, workspaces.enter(Repository(str(source))) as one:
        assert os.listdir(one.path / "sub") == []
        (one.path / "sub").rmdir()
        assert await one.patch() == ""
        (one.path / "sub").mkdir()
        (one.path / "sub/y").write_bytes(b"y\n")
        patch = await one.patch()
    git(tmp_path, "clone", "--quiet", str(source), "fresh")
    assert applied(patch, tmp_path / "fresh")[b"sub/y"] == ("file", b"y\n")


async def test_a_folder_gives_a_patch_for_itself(scratch: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    new_repository(source, FILES)
    shutil.rmtree(source / "folder")
    (source / "uncommitted").write_bytes(LATIN)
    (tmp_path / "elsewhere").mkdir()
    (source / "elsewhere").symlink_to(tmp_path / "elsewhere")
    async with Workspaces.open(scratch) as workspaces, workspaces.enter(Folder(str(source))) as one:
        assert contents(one.path) == contents(source)
        CHANGES["append"](one.path)
        (one.path / "elsewhere/x").write_bytes(b"")
        patch = await one.patch()
        expected = contents(one.path)
    assert applied(patch, source) == expected
    assert "elsewhere" not in patch


async def test_a_repository_of_any_name_and_hash(scratch: Path, tmp_path: Path) -> None:
    source = tmp_path / os.fsdecode(b' "a\\:b\n\xff')
    source.mkdir()
    git(source, "init", "--quiet", "--object-format=sha256", "--initial-branch=größe")
    (source / "a").write_bytes(BINARY)
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message=first")
    async with Workspaces.open(scratch) as workspaces, workspaces.enter(Repository(str(source))) as one:
        assert len(one.commit) == 64
        assert git(one.path, "symbolic-ref", "HEAD").decode() == "refs/heads/größe\n"
        (one.path / "a").write_bytes(BINARY + b"more")
        patch = await one.patch()
    assert applied(patch, source) == {b"a": ("file", BINARY + b"more")}
