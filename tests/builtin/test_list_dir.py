"""`list_dir` as a model calls it."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from ferrule.builtin.tree import Tree
from tests.builtin.conftest import Benches


async def lines(benches: Benches, path: object, **arguments: object) -> list[str]:
    return (await benches("list_dir").call("list_dir", dir_path=str(path), **arguments)).split("\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "a" / "deep" / "er").mkdir(parents=True)
    (root / "a-b").touch()
    (root / "a" / "x").touch()
    (root / "a" / "deep" / "y").touch()
    (root / ".hidden").touch()
    (root / "link").symlink_to("a")
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to("..")
    os.mkfifo(root / "pipe")
    return root


async def test_b148_entries_are_numbered_labelled_and_under_their_folder(benches: Benches, tree: Path) -> None:
    assert await lines(benches, tree) == [
        f"Absolute path: {tree}",
        "E1: .hidden",
        "E2: a/",
        "E3:   deep/",
        "E4:   x",
        "E5: a-b",
        "E6: dangling@",
        "E7: link@",
        "E8: loop@",
        "E9: pipe?",
    ]


async def test_depth(benches: Benches, tree: Path) -> None:
    assert "E3: a-b" in await lines(benches, tree, depth=1)
    deep = await lines(benches, tree, depth=3)
    assert deep[3:6] == ["E3:   deep/", "E4:     er/", "E5:     y"]
    assert len(await lines(benches, tree, depth=1_000_000)) == len(deep)


async def test_paging(benches: Benches, tree: Path) -> None:
    assert (await lines(benches, tree, offset=2, limit=2))[1:] == ["E2: a/", "E3:   deep/", "More than 2 entries found"]
    assert (await lines(benches, tree, offset=8, limit=2))[1:] == ["E8: loop@", "E9: pipe?"]
    assert await lines(benches, tree, offset=10) == ["offset exceeds directory entry count"]


async def test_an_empty_directory_is_only_the_header(benches: Benches, tmp_path: Path) -> None:
    assert await lines(benches, tmp_path) == [f"Absolute path: {tmp_path}"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"offset": 0}, "offset must be a 1-indexed entry number"),
        ({"limit": 0}, "limit must be greater than zero"),
        ({"depth": 0}, "depth must be greater than zero"),
        ({"depth": 1.5}, "depth must be a whole number, not 1.5"),
        ({"dir_path": "tree"}, "dir_path must be an absolute path"),
        ({"dir_path": "/no/such"}, "failed to read directory: No such file or directory (os error 2)"),
        ({"dir_path": "/dev/null"}, "failed to read directory: Not a directory (os error 20)"),
    ],
)
async def test_bad_parameters(benches: Benches, tree: Path, arguments: dict[str, object], text: str) -> None:
    output = await benches("list_dir").output("list_dir", **{"dir_path": str(tree), **arguments})
    assert (output.text, output.success) == (text, False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_one_closed_folder_does_not_hide_the_others(benches: Benches, tree: Path) -> None:
    (tree / "a" / "deep").chmod(0)
    try:
        shown = await lines(benches, tree, depth=3)
        assert "E4:   x" in shown
        assert shown[-1] == "Could not be read: a/deep (Permission denied)"
    finally:
        (tree / "a" / "deep").chmod(0o755)


async def test_odd_names_stay_on_one_line(benches: Benches, tmp_path: Path) -> None:
    for name in ("a\nE9: b", os.fsdecode(b"bad\xff"), "ünï", "\x1b[31mred"):
        (tmp_path / name).touch()
    assert (await lines(benches, tmp_path))[1:] == ["E1: \\x1b[31mred", "E2: a\\nE9: b", "E3: bad\ufffd", "E4: ünï"]


async def test_a_page_reads_only_what_it_shows(
    benches: Benches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, entries = list[str](), Tree._entries

    def counted(tree: Tree, folder: str) -> Iterable[tuple[str, str]]:
        read.append(folder)
        return entries(tree, folder)

    monkeypatch.setattr(Tree, "_entries", counted)
    for folder in range(50):
        (tmp_path / f"{folder:02}").mkdir()
        for name in range(20):
            (tmp_path / f"{folder:02}" / str(name)).touch()
    assert (await lines(benches, tmp_path, limit=2))[-1] == "More than 2 entries found"
    assert read == ["", "00"]
    assert (await lines(benches, tmp_path, offset=1050))[1:] == ["E1050:   9"]
