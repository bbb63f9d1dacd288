"""What a model is told when a hunk does not fit."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.patch import MatchError, Patch, PlainFiles, apply_patch, parse, plan

from .tree import edited, update

FILE = b"import os\n\n\ndef greet(name):\n\tprint('hi', name)\n\treturn name\n\n\ndef main():\n\tgreet('x')\n"


def failure(tmp_path: Path, *lines: str, before: bytes = FILE) -> str:
    with pytest.raises(MatchError) as failed:
        edited(tmp_path, before, *lines)
    text = str(failed.value)
    assert len(text) <= 1500
    return text.replace(str(tmp_path), "")


def test_it_starts_like_the_reference_and_names_hunk_path_and_patch_line(tmp_path: Path) -> None:
    text = failure(tmp_path, "@@", "-import os", "+import sys", "@@", "-nothing like it", "+x")
    assert text.startswith("Failed to find expected lines in /f.txt:\nnothing like it\n\nHunk 2 of 2 (patch line 6): ")


GUTTER = "without the line numbers in front they stand at file line 4"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ("@@", " def greet(name):", "-\tprint('hello', name)"),
            "the first that differs is file line 5:\n  expected: →print('hello', name)\n  found:    →print('hi', ",
        ),
        (
            ("@@", " def greet(name):", "-\tprint( 'hi',name)"),
            "  expected: →print(·'hi',name)\n  found:    →print('hi',·name)\nLikely cause: different blanks",
        ),
        (("@@", "-4\tdef greet(name):", "-5\t\tprint('hi', name)"), GUTTER),
        (("@@", "-L4: def greet(name):"), GUTTER),
        (("@@", "-   4| def greet(name):", "-   5| \tprint('hi', name)"), GUTTER),
        (
            ("@@", "-def old():", "+def main():", " \tgreet('x')"),
            "the result of this hunk already stands at file line 9. Was it applied before?",
        ),
        (
            ("@@", "-\tprint('hi', names)"),
            "the most similar line is file line 5:\n  expected: →print('hi', names)\n  found:    →print('hi', name)",
        ),
        (
            ("@@", "-\tgreet('x')", "-more"),
            "1 of 2 lines match at file line 10, but the file ends there. Expected more",
        ),
        (("@@ def gree", "-x"), "file line 4 contains it, but an anchor is a whole line: @@ def greet(name):"),
        (("@@ -1,2 +1,2 @@", "-x"), "V4A has no line numbers"),
        (("@@ def nosuch():", "-x"), "no line of the file resembles it"),
        (("@@", "-zzz"), "none of the lines is in the file"),
        (("@@", "-import os", "+x", "@@ import os", "+y"), "that line stands at file line 1"),
    ],
)
def test_causes(tmp_path: Path, lines: tuple[str, ...], expected: str) -> None:
    assert expected in failure(tmp_path, *lines)


def test_an_empty_file(tmp_path: Path) -> None:
    assert "the file is empty" in failure(tmp_path, "@@", "-x", before=b"")


def test_tabs_against_spaces_inside_a_line(tmp_path: Path) -> None:
    text = failure(tmp_path, "@@", " a = 1", "-b    = 2", before=b"a = 1\nb\t= 2\n")
    assert "expected: b····=·2\n  found:    b→=·2\nLikely cause: tabs against spaces" in text


def test_odd_characters_are_shown_by_number(tmp_path: Path) -> None:
    text = failure(tmp_path, "@@", " a = 1", "-b = 2", before="a = 1\nb\u200b = 2\n".encode())
    assert "found:    b\\u200b = 2" in text


def test_a_missing_file_under_another_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_bytes(b"x\n")
    with pytest.raises(MatchError, match=r"'src/a\.py' exists there: wrong directory\?"):
        apply_patch(update("project/src/a.py", "@@", "-x"), str(tmp_path))
    with pytest.raises(MatchError, match=f"Paths start at {tmp_path}"):
        apply_patch(update("nope.py", "@@", "-x"), str(tmp_path))


def test_long_lines_and_long_hunks_stay_short(tmp_path: Path) -> None:
    lines = [f"-{number} {'word ' * 100}" for number in range(200)]
    before = "".join(f"{number} {'word ' * 99}\n" for number in range(200)).encode()
    assert len(failure(tmp_path, "@@", *lines, before=before)) <= 1500


@pytest.mark.parametrize("line", ["}", "value = compute(1)", "x"])
def test_finding_the_cause_takes_no_longer_than_the_search(tmp_path: Path, line: str) -> None:
    """In a file of 100,000 equal lines, which is the worst for alignments and similarities."""
    (tmp_path / "f.txt").write_bytes(b"".join(b"%s\n" % line.encode() for _ in range(100_000)))
    run = ["-" + line] * 200
    fitting = parse(update("f.txt", "@@", *(["-" + line + " "] * 200), "+new"))
    missing = parse(update("f.txt", "@@", *run, "-value = computed(2)", *run))

    assert duration(missing, tmp_path) <= 4 * duration(fitting, tmp_path) + 0.1


def duration(parsed: Patch, root: Path) -> float:
    """Seconds that planning takes, the best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        with suppress(MatchError):
            plan(parsed, PlainFiles(), str(root))
        times.append(time.perf_counter() - start)
    return min(times)
