"""Bases: what workspaces start from, on disk, made once and never changed.

BASE/tree         the files; of a repository also `.git`
BASE/manifest     what is in it, as git sees it
"""

import asyncio
import os
import shlex
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ferrule.containers.images.writable import copy_tree
from ferrule.workspaces.run_git import GitFailed, git, upload_pack
from ferrule.workspaces.source import Empty, Folder, Repository, Source, WorkspaceError
from ferrule.workspaces.threads import Stop, on_thread
from ferrule.workspaces.tree import Tree, walk

TREE, MANIFEST = "tree", "manifest"
RACY_NS = 50_000_000
"""A file may change again within the same tick of the kernel's clock, and its stat would not tell."""
PLAIN, PROGRAM, LINK, SUBMODULE = "100644", "100755", "120000", "160000"
"""Modes as git writes them."""
FETCH = ("fetch", "--quiet", "--no-recurse-submodules", "--update-shallow", "--update-head-ok")
"""Tags that lead into the history come along."""
BRANCHES = "refs/heads/"
ANSWER_SECONDS = 30.0
"""In which git tells what a repository is: it takes milliseconds, but waits for ever where a file of it is a FIFO."""
PROMISES = r"^(extensions\.partialclone|remote\..*\.promisor)$"
INCOMPLETE = "it is a partial clone; `git -C {} fetch --refetch --no-filter` gets the rest of its history"
PASSING = "refs/ferrule/base"
"""Where a commit stands that is on no branch, until HEAD says so."""
CONFIG = """[core]
\tcheckStat = minimal
\ttrustctime = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[user]
\tname = Ferrule
\temail = ferrule@localhost
"""
"""Added to the settings of a workspace's repository: a copy looks unchanged, nothing runs in the background, and a
commit needs no settings of a user."""

Stamp = tuple[int, int, int, int]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A file of a base. `oid` is its content's name in the repository; "" without one. `stamp`: the stat by which an
    unchanged file is known; None where that cannot be."""

    mode: str
    oid: str
    stamp: Stamp | None


class Base(msgspec.Struct, frozen=True):
    """A base on disk. `commit` and `object_format` are a repository's."""

    entries: dict[bytes, Entry]
    commit: str = ""
    object_format: str = "sha1"


_decoder = msgspec.msgpack.Decoder(Base)


class Commit(msgspec.Struct, frozen=True):
    """The commit that a repository's workspaces start from. `branch` is where HEAD leads, None if it is detached.
    `is_partial`: objects of its history may be elsewhere."""

    repository: str
    name: str
    branch: str | None
    object_format: str
    is_partial: bool


async def head_of(source: Repository) -> Commit:
    """Return the commit at HEAD. Raises `WorkspaceError`."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await _head_of(source)
    except TimeoutError as error:
        text = f"git did not answer about {source.path} within {ANSWER_SECONDS:g} seconds: does its disk hang?"
        raise WorkspaceError(text) from error


async def _head_of(source: Repository) -> Commit:
    path = os.path.realpath(os.path.expanduser(source.path))
    _must_be_folder(source.path)
    where = ("-C", path, f"--git-dir={path}/.git") if os.path.lexists(f"{path}/.git") else (f"--git-dir={path}",)
    try:
        name = await git(*where, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitFailed as error:
        await _must_be_repository(source.path, *where)
        raise WorkspaceError(f"{source.path} has no commit at HEAD: commit something there first") from error
    kind = await git(*where, "rev-parse", "--show-object-format")
    try:
        head = os.fsdecode((await git(*where, "symbolic-ref", "--quiet", "HEAD")).rstrip(b"\n"))
    except GitFailed:
        head = ""
    branch = head if head.startswith(BRANCHES) else None
    return Commit(path, name.decode().strip(), branch, kind.decode().strip(), await _is_partial(*where))


async def _must_be_repository(path: str, *where: str) -> None:
    try:
        await git(*where, "rev-parse", "--git-dir")
    except GitFailed as error:
        if str(error).startswith("not a git repository"):
            text = f"{path} is no git repository: name its top folder, or give it as a folder"
        else:
            text = f"git cannot read the repository {path}: {error}"
        raise WorkspaceError(text) from error


async def _is_partial(*where: str) -> bool:
    """Tell whether the repository fetches objects from elsewhere when they are needed, which we never do."""
    try:
        return bool(await git(*where, "config", "--get-regexp", PROMISES))
    except GitFailed:
        return False


async def make_base(folder: Path, source: Source, without: tuple[int, int]) -> None:
    """Make a base in an empty folder; `without`, the device and inode of a folder, is left out. Raises
    `WorkspaceError`, `OSError`."""
    tree = folder / TREE
    match source:
        case Empty():
            tree.mkdir()
            base = Base({})
        case Folder():
            base = Base(await on_thread(lambda stop: _copied(source, tree, without, stop)))
        case Repository():
            commit = await head_of(source)
            try:
                base = await _check_out(commit, tree)
            except GitFailed as error:
                more = INCOMPLETE.format(shlex.quote(source.path)) if commit.is_partial else ""
                raise WorkspaceError(f"{source.path} cannot be checked out: {more or error}") from error
    await asyncio.sleep(RACY_NS / 1e9)  # so that no change of a task falls into the tick of the last one here
    (folder / MANIFEST).write_bytes(msgspec.msgpack.encode(base))


def read_base(folder: Path) -> Base:
    """Read what `make_base` has written. Raises `OSError`."""
    return _decoder.decode((folder / MANIFEST).read_bytes())


def _must_be_folder(path: str) -> None:
    if not os.path.isdir(os.path.expanduser(path)):
        raise WorkspaceError(f"there is no folder {path}")


def _copied(source: Folder, tree: Path, without: tuple[int, int], stop: Stop) -> dict[bytes, Entry]:
    """Copy a folder; return its files. A `.git` that is no folder leads into a repository elsewhere and is left
    out."""
    _must_be_folder(source.path)
    top = Path(os.path.realpath(os.path.expanduser(source.path)))
    copy_tree(top, tree, keep_owners=False, without=without, check=stop.check)
    pointer = tree / ".git"
    if pointer.is_symlink() or pointer.is_file():
        pointer.unlink()
    return _entries(tree, stop)


async def _check_out(commit: Commit, tree: Path) -> Base:
    """Fetch a commit with its history, and check it out. Nothing is written into the repository it comes from, and no
    object is shared with it."""
    inside = ("-C", str(tree))
    await git("init", "--quiet", "--template=", f"--object-format={commit.object_format}", str(tree))
    await git(
        *inside,
        *FETCH,
        f"--upload-pack={upload_pack()}",
        commit.repository,
        f"{commit.name}:{commit.branch or PASSING}",
    )
    if commit.branch is None:
        await git(*inside, "update-ref", "--no-deref", "HEAD", commit.name)
        await git(*inside, "update-ref", "-d", PASSING)
    else:
        await git(*inside, "symbolic-ref", "HEAD", commit.branch)
    await git(*inside, "reset", "--quiet", "--hard")
    with (tree / ".git" / "config").open("a") as config:
        config.write(CONFIG)
    listed = await git(*inside, "ls-tree", "-r", "-z", "--full-tree", commit.name)
    return Base(await on_thread(lambda stop: _listed(listed, tree, stop)), commit.name, commit.object_format)


def _listed(listed: bytes, tree: Path, stop: Stop) -> dict[bytes, Entry]:
    """Return the files of a commit that was checked out, but for submodules."""
    entries = {}
    for line in listed.split(b"\0")[:-1]:
        stop.check()
        head, _, path = line.partition(b"\t")
        mode, _, oid = head.decode().split(" ")
        if mode != SUBMODULE:
            entries[path] = Entry(mode, oid, stamp_of(os.lstat(os.path.join(os.fsencode(tree), path))))
    return entries


def _entries(tree: Path, stop: Stop) -> dict[bytes, Entry]:
    """Return the files of a folder."""
    entries = {}
    with Tree(tree) as opened:
        for path, found in walk(opened):
            stop.check()
            if (mode := mode_of(found)) is not None:
                entries[path] = Entry(mode, "", stamp_of(found))
    return entries


def entries_of(tree: Path, entries: Mapping[bytes, Entry]) -> dict[bytes, Entry]:
    """Return the entries of a base with the stamps of a copy that was made just now."""
    settled, top = time.time_ns() - RACY_NS, os.fsencode(tree)
    found = {}
    for path, entry in entries.items():
        status = os.lstat(os.path.join(top, path))
        found[path] = Entry(entry.mode, entry.oid, stamp_of(status) if status.st_ctime_ns < settled else None)
    return found


def mode_of(found: os.stat_result) -> str | None:
    """Return the mode that git gives a file or link; None for what git does not keep."""
    if stat.S_ISLNK(found.st_mode):
        return LINK
    if stat.S_ISREG(found.st_mode):
        return PROGRAM if found.st_mode & stat.S_IXUSR else PLAIN
    return None


def stamp_of(found: os.stat_result) -> Stamp:
    """Return a file's stamp."""
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode
