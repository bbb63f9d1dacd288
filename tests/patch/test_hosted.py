import pytest

from ferrule.patch import AddFile, DeleteFile, ParseError, UpdateFile
from ferrule.patch.hosted import parse_operation


def test_the_three_kinds() -> None:
    assert parse_operation("create_file", "a", "+1\n+2\n").hunks == (AddFile("a", ("1", "2"), 2),)
    assert parse_operation("delete_file", "a").hunks == (DeleteFile("a", 2),)
    (hunk,) = parse_operation("update_file", "a", "@@ f\n-1\n+2\n").hunks
    assert isinstance(hunk, UpdateFile)
    assert [(chunk.anchors, chunk.lines) for chunk in hunk.chunks] == [(("f",), ("-1", "+2"))]


def test_lines_are_counted_in_the_diff() -> None:
    with pytest.raises(ParseError, match=r"on line 2: 'bad' is not a valid hunk header"):
        parse_operation("create_file", "a", "+1\nbad")
    with pytest.raises(ParseError, match="on line 1: Update file hunk for path 'a' is empty"):
        parse_operation("update_file", "a", "")


@pytest.mark.parametrize("diff", ["+1\n*** Delete File: b", "+1\n*** Add File: b\n+2"])
def test_a_diff_cannot_reach_another_file(diff: str) -> None:
    with pytest.raises(ParseError, match="header of another file"):
        parse_operation("create_file", "a", diff)


@pytest.mark.parametrize("path", ["", " ", "a\n*** Delete File: b"])
def test_a_path_is_one_line(path: str) -> None:
    with pytest.raises(ParseError, match="a path of one line"):
        parse_operation("delete_file", path)


def test_a_diff_cannot_end_the_patch() -> None:
    with pytest.raises(ParseError, match="stands after it"):
        parse_operation("create_file", "a", "+1\n*** End Patch\n+2")
