"""Where hunks go, and what they leave alone."""

from pathlib import Path

import pytest

from ferrule.patch import MatchError, PlainFiles, parse, plan
from ferrule.patch.matching import Found, Level, LineIndex
from tests.patch.tree import edited, update

FILE = b"class A:\n    def f():\n        pass\nclass B:\n    def f():\n        pass\n"


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        (b"a\nb\nc\n", ("@@", "-b"), b"a\nc\n"),
        (b"a\nb\n", ("-b", "+B"), b"a\nB\n"),
        (b"a\nb\n", ("@@", "-a", "-b"), b""),
        (b"a\nb\n", ("@@", "+c"), b"a\nb\nc\n"),
        (b"a\n\n", ("@@", "+c"), b"a\n\nc\n"),
        (b"a\nb\nc\n", ("@@ a", "+x"), b"a\nx\nb\nc\n"),
        (b"a\nb\nc\n", ("@@ a", "+x", "*** End of File"), b"a\nb\nc\nx\n"),
        (b"a\nb\nc\n", ("@@", "+x", "@@", "-b"), b"a\nc\nx\n"),
        (b"a\nb\n\n", ("@@", "+x", "@@", "-b", "-"), b"a\nx\n"),
        (b"a\nb\na\nb\n", ("@@", "-a", "+A", " b", "*** End of File"), b"a\nb\nA\nb\n"),
        (b"a\nb\nc\n", ("@@", "-a", "+A", "", "@@", "-c", "+C"), b"A\nb\nC\n"),
        (b"a\n\nb\n", ("@@", "-a", "+A", "", "@@", "-b", "+B"), b"A\n\nB\n"),
        (b"a\n", ("@@", "+x", "", "@@", "-a", "+b"), b"b\nx\n"),
        (b"x\ny\n", ("@@", "-x", "+x", "+z"), b"x\nz\ny\n"),
        (b"a", ("@@", "-a", "+b"), b"b\n"),
        (b"a\nb", ("@@", "-a", "+A"), b"A\nb"),
        (b"a\nb", ("@@", "-a", "+A", " b"), b"A\nb\n"),
        (b"a\nb", ("@@", "-b"), b"a\n"),
        (b"\xff\na\n\xfe", ("@@", "-a", "+b"), b"\xff\nb\n\xfe"),
        (b"\xff\na\n", ("@@", " \udcff", "-a"), b"\xff\n"),
        (b"a\x00\nb\rc\nd\n", ("@@", "-d", "+e"), b"a\x00\nb\rc\ne\n"),
        (b"a\r\nb\r\n", ("@@", "+c"), b"a\r\nb\r\nc\r\n"),
        (b"\xef\xbb\xbf", ("@@", "+c"), b"\xef\xbb\xbfc\n"),
    ],
)
def test_updates(tmp_path: Path, before: bytes, lines: tuple[str, ...], after: bytes) -> None:
    assert edited(tmp_path, before, *lines) == after


def test_anchors_nest(tmp_path: Path) -> None:
    after = edited(tmp_path, FILE, "@@ class B:", "@@     def f():", "-        pass", "+        return 1")
    assert after == FILE[: FILE.rindex(b"        pass")] + b"        return 1\n"


def test_an_anchor_is_looked_for_after_the_hunk_before(tmp_path: Path) -> None:
    with pytest.raises(MatchError, match=r"that line stands at file line 1.*Put the hunks in file order"):
        edited(tmp_path, FILE, "@@ class B:", "+x", "@@ class A:", "+y")


def test_hunks_are_in_file_order(tmp_path: Path) -> None:
    with pytest.raises(MatchError, match=r"these lines stand at file line 1.*from line 3 on"):
        edited(tmp_path, b"a\nb\nc\n", "@@", "-b", "@@", "-a")


def test_the_end_of_file_marker_binds(tmp_path: Path) -> None:
    with pytest.raises(MatchError, match=r"stand at file line 2, but 1 more follow"):
        edited(tmp_path, b"a\nb\nc\n", "@@", "-b", "*** End of File")


@pytest.mark.parametrize("lines", [("@@", " a"), ("@@", "-a", "+a")])
def test_an_update_that_changes_nothing_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(MatchError, match="change nothing"):
        edited(tmp_path, b"a\nb\n", *lines)


def test_what_a_plan_tells(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"".join(b"%d\n" % number for number in range(1, 21)))
    text = update("f.txt", "*** Move to: g.txt", "@@", "-2", "+two", "+2.5", "@@", " 18", "-19")
    (operation,) = plan(parse(text), PlainFiles(), str(tmp_path)).operations
    assert (operation.path, operation.move_to) == ("f.txt", "g.txt")
    assert (operation.added, operation.deleted) == (2, 2)
    assert operation.targets == (str(tmp_path / "f.txt"), str(tmp_path / "g.txt"))
    assert operation.before and operation.after and b"two\n2.5\n" in operation.after
    assert operation.unified_diff(context=1) == (
        "@@ -1,3 +1,4 @@\n 1\n-2\n+two\n+2.5\n 3\n@@ -18,3 +19,2 @@\n 18\n-19\n 20\n"
    )


def test_a_diff_shows_a_missing_newline(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"x")
    (operation,) = plan(parse(update("f.txt", "@@", " x", "+y")), PlainFiles(), str(tmp_path)).operations
    assert operation.unified_diff() == "@@ -1 +1,2 @@\n-x\n\\ No newline at end of file\n+x\n+y\n"


def test_a_common_line_is_not_looked_at_for_ever() -> None:
    """After a few places of it the whole file is prepared, where a search is linear whatever the lines are."""

    class Counting(list[str]):
        looked = 0

        def index(self, *args: object) -> int:
            self.looked += 1
            return super().index(*args)  # type: ignore[arg-type]

    lines = Counting(["same"] * 10_000 + ["same!"])
    found = LineIndex(lines, ["same", "same!"]).find(["same", "same", "same!"], 0)
    assert found == Found(9_998, Level.EXACT)
    lines[-1] = "last"
    found = LineIndex(lines, ["same", "last"]).find(["same", "same", "last"], 0)
    assert found == Found(9_998, Level.EXACT)
    assert lines.looked <= 20


def test_levels_are_tried_over_the_whole_file() -> None:
    lines = ["x –", " x -", "x - ", "x -"]
    index = LineIndex(lines, ["x -"])
    assert [index.find(["x -"], start) for start in range(4)] == [Found(3, Level.EXACT)] * 4
    assert LineIndex(lines[:3], ["x -"]).find(["x -"], 0) == Found(2, Level.TRAILING_BLANKS)
    assert LineIndex(lines[:2], ["x -"]).find(["x -"], 0) == Found(1, Level.BLANKS)
    assert LineIndex(lines[:1], ["x -"]).find(["x -"], 0) == Found(0, Level.PUNCTUATION)
    assert LineIndex(["e\u0301"], ["é"]).find(["é"], 0) == Found(0, Level.UNICODE)
    assert LineIndex(["e"], ["é"]).find(["é"], 0) is None
