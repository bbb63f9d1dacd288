"""What a model is told when a hunk does not fit."""

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.patch import MatchError, ParseError, Patch, PatchError, PlainFiles, apply_patch, parse, plan
from tests.patch.tree import edited, patch, snapshot, update

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

ESCAPES = 'with its escapes read (`\\n` as a line end, `\\t` as a tab, `\\"` as a quote) they stand at file line 4'


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
        (("@@", "-   4→def greet(name):"), GUTTER),
        (("@@ 4: def greet(name):", "-x"), GUTTER),
        (("@@", "-def greet(name):\\n\\tprint(\\'hi\\', name)"), ESCAPES),
        (("@@", "-\\tprint('hi', name)"), "with its escapes read"),
        (("@@", "-\tprint(&#39;hi&#39;, name)"), "with `&lt;`, `&gt;`, `&amp;` and their like read as characters they"),
        (("@@", "--\tprint('hi', name)"), "without the signs of a diff they stand at file line 5"),
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


HEADERS = ("--- a/f.txt", "+++ b/f.txt", "@@ -1,1 +1,1 @@", "-import os", "+import sys")


def test_n044_the_file_names_of_a_unified_diff_are_named(tmp_path: Path) -> None:
    text = failure(tmp_path, *HEADERS)
    assert "Hunk 1 of 2 (patch line 3): the lines that start with '--- ' and '+++ ' are the file names" in text
    assert (tmp_path / "f.txt").read_bytes() == FILE


@pytest.mark.parametrize("head", ["diff --git a/f.txt b/f.txt", "index 83db48f..bf269f4 100644", "+++ b/f.txt"])
def test_n044_other_lines_of_a_unified_diff(tmp_path: Path, head: str) -> None:
    (tmp_path / "f.txt").write_bytes(FILE)
    lines = (head, "@@", "-import os", "+import sys")
    with pytest.raises(PatchError, match="V4A has no line numbers"):
        apply_patch(update("f.txt", *lines), str(tmp_path))
    with pytest.raises(PatchError, match="V4A has no line numbers"):
        apply_patch(patch("*** Add File: new", "--- /dev/null", "+++ b/new", "+x"), str(tmp_path))
    assert (tmp_path / "f.txt").read_bytes() == FILE


def test_n038_lines_that_only_look_like_it_are_content(tmp_path: Path) -> None:
    before = b"-- a/old\n++ b\nx\n"
    after = edited(tmp_path, before, "--- a/old", "+-- a/new", " ++ b", "+++ b/other", "@@", "-x", "+++ b/f.txt")
    assert after == b"-- a/new\n++ b\n++ b/other\n++ b/f.txt\n"


def test_a_patch_with_escaped_line_ends(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(FILE)
    text = update("f.txt", "@@", "-import os", "+import sys").replace("\n", "\\n")
    for sent in (text, f'"{text}"'):
        with pytest.raises(ParseError, match="as two characters where a line ends"):
            apply_patch(sent, str(tmp_path))


def test_a_path_in_quotes_or_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_bytes(FILE)
    for path in ('"a b.txt"', "a\\ b.txt", "`a b.txt`"):
        with pytest.raises(MatchError, match=r"'a b\.txt' exists: write the path without quotes and escapes"):
            apply_patch(update(path, "@@", "-import os", "+x"), str(tmp_path))


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("~/notes/x.md", "/home/me/notes/x.md"),
        ("~", "/home/me"),
        ("~root/x", "/root/x"),
        ("$HOME/x.md", "/home/me/x.md"),
        ("${HOME}/x.md", "/home/me/x.md"),
        ("file:///home/me/a%20b", "/home/me/a b"),
    ],
)
def test_n025_a_path_that_only_a_shell_expands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, meant: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    texts = [patch(f"*** Add File: {path}", "+x"), patch(f"*** Delete File: {path}"), update(path, "@@", "-a", "+b")]
    texts.append(update("f.txt", f"*** Move to: {path}", "@@", "-import os", "+x"))
    (tmp_path / "f.txt").write_bytes(FILE)
    for text in texts:
        with pytest.raises(MatchError, match=f"write {re.escape(meant)}(,|$)"):
            apply_patch(text, str(tmp_path))
    assert snapshot(tmp_path) == {"f.txt": FILE}


@pytest.mark.parametrize(
    "path", ["$id.tsx", "$slug/page.tsx", "~backup.txt", "~$doc.docx", "./~/x", "a/~/x", "$HOME.md"]
)
def test_n025_names_that_no_shell_expands(tmp_path: Path, path: str) -> None:
    apply_patch(patch(f"*** Add File: {path}", "+x"), str(tmp_path))
    assert (tmp_path / path).read_bytes() == b"x\n"


def test_n025_a_name_that_is_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "~root").write_bytes(FILE)
    apply_patch(update("~root", "@@", "-import os", "+x"), str(tmp_path))


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
    """Seconds of the processor that planning takes, the best of three."""
    times = []
    for _ in range(3):
        start = time.thread_time()
        with suppress(MatchError):
            plan(parsed, PlainFiles(), str(root))
        times.append(time.thread_time() - start)
    return min(times)
