"""The search in Python within its bounds: time, lines and memory, however large one file is."""

from pathlib import Path

import pytest

from ferrule.builtin.searching import python
from ferrule.builtin.searching.python import search_in_python
from ferrule.builtin.searching.request import Search
from ferrule.builtin.searching.ripgrep import MAX_LINES
from ferrule.ignores.walk import Walk
from ferrule.protocol.errors import RespondToModel


def search(folder: Path, pattern: str, *, lines: bool = True) -> Search:
    return Search(path=str(folder), cwd=str(folder), pattern=pattern, lines=lines)


def test_the_time_counts_inside_of_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x\n" * 1000)
    now = iter([0.0, 1.0, 31.0])
    monkeypatch.setattr("ferrule.builtin.searching.python.time.monotonic", lambda: next(now))
    with pytest.raises(RespondToModel, match="timed out after 30 seconds"):
        search_in_python(search(tmp_path, "y"))


def test_of_one_file_no_more_lines_are_kept_than_are_answered(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\n" * (MAX_LINES + 10))
    found = search_in_python(search(tmp_path, "x"))
    assert (len(found.lines), found.lines[-1].number, found.cut) == (MAX_LINES, MAX_LINES, True)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_read_block_by_block(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "FIRST", 7)
    monkeypatch.setattr(python, "BLOCK", 9)
    text = "\ufeff" + "one\nünï 𝄞 two\n" * 3 + "three is longer than a block\nlast two"
    (tmp_path / "a").write_bytes(text.encode(encoding))
    found = search_in_python(search(tmp_path, "𝄞 two$|last"))
    assert [line.text.decode() for line in found.lines][:3] == ["ünï 𝄞 two"] * 3
    assert search_in_python(search(tmp_path, "last", lines=False)).count == 1


def test_a_folder_that_becomes_a_link_to_what_is_not_shown_is_not_listed(tmp_path: Path) -> None:
    shown, outside = tmp_path / "shown", tmp_path / "outside"
    for folder in (shown / "d", outside):
        folder.mkdir(parents=True)
    (shown / "first").touch()
    (outside / "name").touch()
    walk = Walk(str(shown), str(shown), shown=(str(shown),))
    found = iter(walk)
    assert next(found) == f"{shown}/first"
    (shown / "d").rmdir()
    (shown / "d").symlink_to(outside)
    assert list(found) == []
    assert walk.problems[0].startswith(f"{shown}/d: it is not among the folders")


def test_ignore_files_that_are_not_shown_say_nothing(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    for name in ("guess", "other"):
        (shown / name).touch()
    (tmp_path / ".ignore").write_text("guess\n")
    (tmp_path / "secret").write_text("other\n")
    (shown / ".rgignore").symlink_to(tmp_path / "secret")
    everything = Search(path=str(shown), cwd=str(shown))
    assert search_in_python(everything).count == 0
    confined = Search(path=str(shown), cwd=str(shown), shown=(str(shown),))
    assert sorted(search_in_python(confined).files) == [f"{shown}/guess", f"{shown}/other"]


def test_of_one_ignore_file_no_more_rules_are_read_than_files_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.ignores.walk.MAX_RULES", 2)
    (tmp_path / ".ignore").write_text("# none\na\n\nb\nc\n")
    for name in "abc":
        (tmp_path / name).touch()
    assert [*Walk(str(tmp_path), str(tmp_path))] == [f"{tmp_path}/c"]
