"""Any tree becomes any other: the patch of a folder makes it into what stands in the workspace."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.workspaces import Folder, Workspaces
from tests.workspaces.places import applied, contents

Tree = dict[bytes, tuple[str, bytes]]
NAMES = st.sampled_from(
    [b"a", b"b", b" b ", b"\n", "ä".encode(), b"\xff", b'"\\', b"a.b", b"--", b"dev", b"\t{a => b}"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
LINES = st.lists(
    st.sampled_from([b"1\n", b"2\n", b"\r\n", b" \n", b"--- a\n", b"diff --git a/a b/a\n", b"\xe4\n"]), max_size=30
)
DATA = st.one_of(
    st.builds(lambda lines, end: b"".join(lines) + end, LINES, st.sampled_from([b"", b"x", b"\r"])),
    st.binary(max_size=200),
    st.binary(min_size=1, max_size=4).map(lambda piece: piece * 3000),
)
FILES = st.tuples(st.sampled_from(["file", "file", "program"]), DATA)
LINKS = st.tuples(st.just("link"), st.binary(min_size=1, max_size=50).filter(lambda target: b"\0" not in target))


def fitting(found: Tree) -> Tree:
    """Leave out what would stand below a file."""
    kept: Tree = {}
    for path in sorted(found, key=len):
        above = path
        while above := above.rpartition(b"/")[0]:
            if above in kept:
                break
        else:
            kept[path] = found[path]
    return kept


TREES = st.dictionaries(PATHS, st.one_of(FILES, FILES, LINKS), max_size=12).map(fitting)


@st.composite
def two_trees(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A tree, and another one that has some of it at the same or at other paths."""
    old = draw(TREES)
    new = draw(TREES)
    for path, found in old.items():
        match draw(st.integers(0, 5)):
            case 0 | 1:
                new.setdefault(path, found)
            case 2:
                new[path] = found[0], found[1] + b"more"
            case 3:
                new[draw(PATHS)] = found
            case _:
                pass
    return old, fitting(new)


def write(top: Path, tree: Tree) -> None:
    """Make a folder hold exactly this."""
    for entry in os.scandir(top):
        shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
    for name, (kind, content) in tree.items():
        path = os.path.join(os.fsencode(top), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if kind == "link":
            os.symlink(content, path)
        else:
            Path(os.fsdecode(path)).write_bytes(content)
            os.chmod(path, 0o755 if kind == "program" else 0o644)


async def patch_between(old: Tree, new: Tree, top: Path) -> str:
    """Return the patch of a workspace of `old` that is made into `new`."""
    (top / "old").mkdir()
    write(top / "old", old)
    async with Workspaces.open(top / "scratch") as workspaces, workspaces.enter(Folder(str(top / "old"))) as one:
        assert contents(one.path) == old
        write(one.path, new)
        assert contents(one.path) == new
        return await one.patch()


@given(two_trees())
@settings(
    max_examples=int(os.environ.get("FERRULE_TREES", "12")),
    derandomize="FERRULE_TREES" not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_any_tree_becomes_any_other(trees: tuple[Tree, Tree]) -> None:
    old, new = trees
    with tempfile.TemporaryDirectory(prefix="ferrule-trees-") as folder:
        patch = asyncio.run(patch_between(old, new, Path(folder)))
        assert (patch == "") == (old == new)
        assert applied(patch, Path(folder, "old")) == new
