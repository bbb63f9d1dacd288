"""Failures that users of coding-agent tools reported in public, each as a small input with the right behaviour."""

import os
import stat
from pathlib import Path

import pytest

from ferrule.patch import ApplyError, MatchError, ParseError, PlainFiles, apply, apply_patch, parse, plan
from ferrule.patch.invocation import find_patch
from tests.patch.tree import END, edited, patch, snapshot, update

B001 = update("f.txt", "@@", " one", "-two", "+TWO", "+2.5", " three")


def test_b001_inserted_lines_take_the_ending_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    apply_patch(B001, str(tmp_path))
    assert (tmp_path / "f.txt").read_bytes() == b"one\r\nTWO\r\n2.5\r\nthree\r\n"


def test_b001_a_mixed_file_keeps_each_untouched_line(tmp_path: Path) -> None:
    before = b"a\nb\r\nc\r\nd\n\xff\r\ne\r\n"
    assert edited(tmp_path, before, "@@", "-c", "+C") == b"a\nb\r\nC\r\nd\n\xff\r\ne\r\n"
    assert edited(tmp_path, b"a\r\nb\nc\n", "@@", "-b", "+B") == b"a\r\nB\nc\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_b002_a_patch_with_crlf(tmp_path: Path, end: bytes) -> None:
    (tmp_path / "f.txt").write_bytes(end.join((b"one", b"two", b"three", b"")))
    apply_patch(B001.replace("\n", "\r\n"), str(tmp_path))
    assert (tmp_path / "f.txt").read_bytes() == end.join((b"one", b"TWO", b"2.5", b"three", b""))


def test_b004_trailing_blank_lines_are_kept(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"alpha\nbeta\n\n")
    planned = plan(parse(update("f.txt", "@@", "-alpha", "+ALPHA")), PlainFiles(), str(tmp_path))
    assert [(each.added, each.deleted) for each in planned.operations] == [(1, 1)]
    assert edited(tmp_path, b"alpha\nbeta\n\n", "@@", "-alpha", "+ALPHA") == b"ALPHA\nbeta\n\n"
    assert edited(tmp_path, b"ALPHA\nbeta\n\n", "@@", "-beta", "+BETA") == b"ALPHA\nBETA\n\n"


def test_b005_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    before = b"\xef\xbb\xbfconst v = 1;\nx\xef\xbb\xbfy\n"
    after = edited(tmp_path, before, "@@", "-const v = 1;", "+const v = 2;")
    assert after == b"\xef\xbb\xbfconst v = 2;\nx\xef\xbb\xbfy\n"


def test_b007_add_does_not_overwrite(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_bytes(b"old\n")
    text = patch("*** Add File: e.txt", "+new")
    with pytest.raises(ApplyError, match="already exists"):
        apply_patch(text, str(tmp_path))
    assert (tmp_path / "e.txt").read_bytes() == b"old\n"


def test_b007_an_allowed_overwrite_is_a_change_with_a_real_diff(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_bytes(b"old\nsame\n")
    planned = plan(parse(patch("*** Add File: e.txt", "+new", "+same")), PlainFiles(), str(tmp_path))
    assert planned.overwrites == ("e.txt",)
    assert planned.operations[0].unified_diff() == "@@ -1,2 +1,2 @@\n-old\n+new\n same\n"
    assert planned.summary().endswith("M e.txt\n")
    apply(planned, PlainFiles(), overwrite=True)
    assert (tmp_path / "e.txt").read_bytes() == b"new\nsame\n"


def test_deleted_and_added_again_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"old\nsame\n")
    path.chmod(0o750)
    text = patch("*** Delete File: run.sh", "*** Add File: n", "+n", "*** Add File: run.sh", "+new", "+same")
    planned = plan(parse(text), PlainFiles(), str(tmp_path))
    assert planned.summary() == "Success. Updated the following files:\nA n\nM run.sh\n"
    assert planned.operations[-1].unified_diff() == "@@ -1,2 +1,2 @@\n-old\n+new\n same\n"
    assert planned.overwrites == ()
    apply(planned, PlainFiles())
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new\nsame\n", 0o750)


@pytest.mark.parametrize("kind", ["link", "hard link"])
def test_deleted_and_added_again_reaches_no_other_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "other").write_bytes(b"old\n")
    if kind == "link":
        (tmp_path / "f").symlink_to("other")
    else:
        (tmp_path / "f").hardlink_to(tmp_path / "other")
    said = apply_patch(patch("*** Delete File: f", "*** Add File: f", "+new"), str(tmp_path))
    assert said == "Success. Updated the following files:\nM f\n"
    assert snapshot(tmp_path) == {"f": b"new\n", "other": b"old\n"}


def test_deleted_and_made_anew_by_a_move_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\n")
    (tmp_path / "b").write_bytes(b"b\n")
    text = patch("*** Delete File: a", "*** Update File: b", "*** Move to: a")
    assert apply_patch(text, str(tmp_path)) == "Success. Updated the following files:\nM a\n"
    assert snapshot(tmp_path) == {"a": b"b\n"}
    text = patch("*** Add File: c", "+c", "*** Delete File: c", "*** Delete File: a")
    assert apply_patch(text, str(tmp_path)).endswith("A c\nD c\nD a\n")


def test_deleted_added_and_updated_in_one_patch(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\n")
    text = patch("*** Delete File: a", "*** Add File: a", "+x", "*** Update File: a", "@@", "-x", "+y")
    assert apply_patch(text, str(tmp_path)).endswith(":\nM a\nM a\n")
    assert snapshot(tmp_path) == {"a": b"y\n"}


def test_b008_the_plan_names_the_real_target_of_a_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"k\n")
    (root / ".env").symlink_to("../outside/secret")
    for text in (patch("*** Add File: .env", "+X=1"), update(".env", "@@", "-k", "+X=1")):
        planned = plan(parse(text), PlainFiles(), str(root))
        assert planned.operations[0].targets == (str(outside / "secret"),)
    assert (outside / "secret").read_bytes() == b"k\n"


def test_b008_an_allowed_edit_goes_to_the_target_and_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"k\n")
    (tmp_path / "link").symlink_to("real")
    apply_patch(update("link", "@@", "-k", "+v"), str(tmp_path))
    assert snapshot(tmp_path) == {"link": b"-> real", "real": b"v\n"}


def test_b010_a_move_does_not_overwrite(tmp_path: Path) -> None:
    (tmp_path / "src.txt").write_bytes(b"s\n")
    (tmp_path / "dst.txt").write_bytes(b"d\n")
    before = snapshot(tmp_path)
    text = update("src.txt", "*** Move to: dst.txt", "@@", "-s", "+s2")
    with pytest.raises(ApplyError, match=r"dst\.txt already exists"):
        apply_patch(text, str(tmp_path))
    assert snapshot(tmp_path) == before
    assert plan(parse(text), PlainFiles(), str(tmp_path)).operations[0].replaced == b"d\n"
    apply_patch(text, str(tmp_path), overwrite=True)
    assert snapshot(tmp_path) == {"dst.txt": b"s2\n"}


def test_b011_a_mismatch_in_one_file_changes_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\n")
    (tmp_path / "b.txt").write_bytes(b"b\n")
    before = snapshot(tmp_path)
    text = patch("*** Delete File: a.txt", "*** Update File: b.txt", "@@", "-stale", "+x")
    with pytest.raises(MatchError, match=r"b\.txt"):
        apply_patch(text, str(tmp_path))
    assert snapshot(tmp_path) == before
    twice = patch("*** Update File: a.txt", "@@", "+more", "*** Update File: b.txt", "@@", "-stale", "+x")
    for _ in range(2):
        with pytest.raises(MatchError):
            apply_patch(twice, str(tmp_path))
    assert snapshot(tmp_path) == before


def test_b013_the_last_pass_compares_composed_forms(tmp_path: Path) -> None:
    before = "cafe\u0301 = 1\ne\u0301 stays\n".encode()
    after = edited(tmp_path, before, "@@", "-caf\u00e9 = 1", "+caf\u00e9 = 2", " \u00e9 stays")
    assert after == "caf\u00e9 = 2\ne\u0301 stays\n".encode()


def test_b014_a_later_exact_line_wins_over_an_earlier_folded_one(tmp_path: Path) -> None:
    lines = ["x \u2013 y", "say \u201chi\u201d", "a\u00a0b", "4", "5", "6", "7", "8", "x - y"]
    before = "\n".join((*lines, "")).encode()
    assert edited(tmp_path, before, "@@", "-x - y", "+found") == before.replace(b"x - y", b"found")


@pytest.mark.parametrize(
    ("line", "asked"), [("x \u2013 y", "x - y"), ("say \u201chi\u201d", 'say "hi"'), ("a\u00a0b", "a b")]
)
def test_b014_dashes_quotes_and_spaces_are_folded(tmp_path: Path, line: str, asked: str) -> None:
    assert edited(tmp_path, f"{line}\nend\n".encode(), "@@", f"-{asked}", "+new") == b"new\nend\n"


def test_b014_an_ellipsis_is_not_three_dots(tmp_path: Path) -> None:
    with pytest.raises(MatchError):
        edited(tmp_path, "wait\u2026\n".encode(), "@@", "-wait...", "+go")


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("*** Begin Patch ***", "*** End Patch ***"),
        ("  *** Begin Patch  ", " *** End Patch\t"),
        ("\n\n*** Begin Patch", "*** End Patch\n\n"),
    ],
)
def test_b016_markers_with_stars_and_blanks(tmp_path: Path, first: str, last: str) -> None:
    (tmp_path / "a").write_bytes(b"x\n")
    apply_patch(f"{first}\n*** Update File: a\n@@\n-x\n+y\n{last}", str(tmp_path))
    assert (tmp_path / "a").read_bytes() == b"y\n"


def test_b016_a_wrong_first_line_is_answered_with_the_right_one() -> None:
    with pytest.raises(ParseError, match=r"must be '\*\*\* Begin Patch'"):
        parse("* Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch")


def test_b017_an_end_marker_before_the_patch_is_no_success(tmp_path: Path) -> None:
    text = "note: finish with\n*** End Patch\n" + patch("*** Add File: n.txt", "+hi")
    with pytest.raises(ParseError, match="first line of the patch"):
        apply_patch(text, str(tmp_path))
    with pytest.raises(MatchError, match="No files were modified"):
        apply_patch(patch(), str(tmp_path))
    assert snapshot(tmp_path) == {}


def test_b019_everything_resolves_against_the_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("a", b"A\n"), ("b/sub", b"B\n")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "README").write_bytes(text)
    monkeypatch.chdir(tmp_path / "a")
    apply_patch(update("README", "@@", "-B", "+B2"), str(tmp_path / "b/sub"))
    assert (tmp_path / "a/README").read_bytes() == b"A\n"
    assert (tmp_path / "b/sub/README").read_bytes() == b"B2\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["apply_patch", B001],
        ["apply-patch", B001],
        ["bash", "-lc", f"applypatch <<'EOF'\n{B001}EOF\n"],
        ["/bin/bash", "-c", f"apply-patch <<EOF\n{B001}EOF"],
    ],
)
def test_b020_the_known_spellings_are_recognised(argv: list[str]) -> None:
    found = find_patch(argv)
    assert found is not None
    assert parse(found.text) == parse(B001)


def test_b022_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "m.sql").touch()
    text = update("m.sql", "@@", "+create table t(i int);", "*** End of File")
    assert apply_patch(text, str(tmp_path)) == "Success. Updated the following files:\nM m.sql\n"
    assert (tmp_path / "m.sql").read_bytes() == b"create table t(i int);\n"


def test_b023_missing_folders_are_created(tmp_path: Path) -> None:
    apply_patch(patch("*** Add File: a/b/c.txt", "+x"), str(tmp_path))
    assert snapshot(tmp_path) == {"a": None, "a/b": None, "a/b/c.txt": b"x\n"}


def test_b023_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(MatchError, match=f"{tmp_path}/a is not a directory"):
        apply_patch(patch("*** Add File: a/b/c.txt", "+x"), str(tmp_path))


def test_b023_created_folders_are_removed_again(tmp_path: Path) -> None:
    class Full(PlainFiles):
        def create(self, path: str, data: bytes, mode: int | None = None) -> None:
            if path.endswith("second"):
                raise OSError(28, "No space left on device")
            super().create(path, data, mode)

    text = patch("*** Add File: a/b/first", "+x", "*** Add File: c/second", "+y")
    with pytest.raises(ApplyError, match=r"second: No space left on device .*Nothing was changed"):
        apply_patch(text, str(tmp_path), Full())
    assert snapshot(tmp_path) == {}


NOTES = b"# Chapter 1\n## Notes\nTODO\n# Chapter 2\n## Notes\nTODO\n# Chapter 3\n## Notes\nTODO\n"


def test_b025_without_an_anchor_the_first_block_after_the_previous_hunk(tmp_path: Path) -> None:
    chunk = ("@@", " ## Notes", "-TODO", "+done")
    assert edited(tmp_path, NOTES, *chunk) == NOTES.replace(b"TODO", b"done", 1)
    assert edited(tmp_path, NOTES, *chunk, *chunk) == NOTES.replace(b"TODO", b"done", 2)


def test_b025_with_an_anchor_the_block_after_it(tmp_path: Path) -> None:
    after = edited(tmp_path, NOTES, "@@ # Chapter 2", " ## Notes", "-TODO", "+done")
    assert after == b"# Chapter 2\n## Notes\ndone\n".join(NOTES.split(b"# Chapter 2\n## Notes\nTODO\n"))


def test_b025_a_context_only_hunk_is_inert_next_to_real_edits(tmp_path: Path) -> None:
    after = edited(tmp_path, NOTES, "@@", " # Chapter 1", "@@", " ## Notes", "-TODO", "+done")
    assert after == NOTES.replace(b"TODO", b"done", 1)


def test_b025_an_error_tells_which_hunk(tmp_path: Path) -> None:
    with pytest.raises(MatchError, match=r"f\.txt[\s\S]*## Nope[\s\S]*Hunk 2 of 2 \(patch line 6\)"):
        edited(tmp_path, NOTES, "@@", "-TODO", "+done", "@@", "-## Nope", "+x")


def test_b026_one_line_of_other_indentation_does_not_defeat_a_long_hunk(tmp_path: Path) -> None:
    file = [f"  statement_{number}()" for number in range(1, 31)]
    hunk = [f" {line}" for line in file[2:27]]
    hunk[20] = "   " + hunk[20]
    after = edited(tmp_path, "\n".join((*file, "")).encode(), "@@", *hunk, "+x")
    assert after.decode().split("\n") == [*file[:27], "x", *file[27:], ""]


def test_b026_expected_and_actual_with_visible_blanks(tmp_path: Path) -> None:
    file = [f"  statement_{number}()" for number in range(1, 31)]
    hunk = [f" {line}" for line in file[2:27]]
    hunk[20] = "   other_23()"
    with pytest.raises(MatchError) as failed:
        edited(tmp_path, "\n".join((*file, "")).encode(), "@@", *hunk, "+x")
    text = str(failed.value)
    assert "24 of 25 lines match at file line 3; the first that differs is file line 23" in text
    assert "expected: ··other_23()" in text
    assert "found:    ··statement_23()" in text
    assert len(text) <= 1500


def test_b028_appending_after_an_unterminated_line(tmp_path: Path) -> None:
    assert edited(tmp_path, b"x=1", "@@", " x=1", "+y=2") == b"x=1\ny=2\n"
    assert edited(tmp_path, b"w\r\nx=1", "@@", " x=1", "+y=2") == b"w\r\nx=1\r\ny=2\r\n"
    assert edited(tmp_path, b"x=1", "@@", "+y=2") == b"x=1\ny=2\n"


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o4755, 0o660])
def test_b029_the_mode_is_kept(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "run.sh"
    file.write_bytes(b"a\n")
    file.chmod(mode)
    apply_patch(update("run.sh", "@@", "-a", "+b"), str(tmp_path))
    assert stat.S_IMODE(file.stat().st_mode) == mode
    apply_patch(update("run.sh", "*** Move to: bin/run.sh", "@@", "-b", "+c"), str(tmp_path))
    assert stat.S_IMODE((tmp_path / "bin/run.sh").stat().st_mode) == mode


def test_b029_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        apply_patch(patch("*** Add File: new", "+x"), str(tmp_path))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_b029_hard_links_stay_together(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a\n")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    planned = plan(parse(update("one", "@@", "-a", "+b")), PlainFiles(), str(tmp_path))
    assert planned.operations[0].shared
    apply(planned, PlainFiles())
    assert snapshot(tmp_path) == {"one": b"b\n", "two": b"b\n"}
    assert (tmp_path / "one").stat().st_nlink == 2


TABS = b"func f() {\n\tx := 1\n\ty := 2\n}\n"


def test_b031_other_indentation_matches_last_and_is_noted(tmp_path: Path) -> None:
    lines = ("@@", "-    x := 1", "+    x := 10")
    assert edited(tmp_path, TABS, *lines) == b"func f() {\n    x := 10\n\ty := 2\n}\n"
    (tmp_path / "f.txt").write_bytes(TABS)
    notes = plan(parse(update("f.txt", *lines)), PlainFiles(), str(tmp_path)).operations[0].notes
    assert notes == (
        "Hunk 1 of f.txt matched at line 2 only with other indentation; added lines were written as given.",
    )


def test_b031_context_keeps_the_bytes_of_the_file(tmp_path: Path) -> None:
    after = edited(tmp_path, TABS, "@@", " func f() {", "     x := 1", "-    y := 2", "+\ty := 3")
    assert after == b"func f() {\n\tx := 1\n\ty := 3\n}\n"


def test_b031_a_patch_of_indentation_alone(tmp_path: Path) -> None:
    assert edited(tmp_path, TABS, "@@", "-\tx := 1", "+    x := 1") == TABS.replace(b"\tx", b"    x")


def test_b031_an_exact_line_wins_over_an_earlier_one_that_is_equal_after_trimming(tmp_path: Path) -> None:
    assert edited(tmp_path, b"\tx\n  x\nx\n", "@@", "-x", "+y") == b"\tx\n  x\ny\n"
    assert edited(tmp_path, b"\tx\n  x\n", "@@", "-x", "+y") == b"y\n  x\n"


def test_an_end_marker_is_needed() -> None:
    with pytest.raises(ParseError, match="cut short"):
        parse(patch("*** Add File: a", "+x").removesuffix(END + "\n"))


def test_n037_an_empty_line_is_context_in_a_hunk_and_nothing_between_sections(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n\ntwo\n")
    (tmp_path / "b").write_bytes(b"x\n")
    lines = ("*** Update File: a", "@@", " one", "", "-two", "+TWO", "", "*** Update File: b", "@@", "-x", "+y")
    apply_patch(patch(*lines), str(tmp_path))
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"one\n\nTWO\n", b"y\n")


TYPOGRAPHY = "\u201cquoted\u201d \u201elow\u201c \u2018it\u2019s\u2019 \u2014 \u250c\u2500\u2510 \u2192 \U0001f600"


def test_n040_typography_is_written_as_it_is(tmp_path: Path) -> None:
    apply_patch(patch("*** Add File: n.md", f"+{TYPOGRAPHY}"), str(tmp_path))
    assert (tmp_path / "n.md").read_bytes() == f"{TYPOGRAPHY}\n".encode()
    assert edited(tmp_path, b"a\nb\n", "@@", "-a", f"+{TYPOGRAPHY}") == f"{TYPOGRAPHY}\nb\n".encode()


def test_n041_context_that_is_found_by_its_folded_form_keeps_its_bytes(tmp_path: Path) -> None:
    before = f"{TYPOGRAPHY}\nold\n\u201cend\u201d\n".encode()
    after = edited(tmp_path, before, "@@", "-old", "+new", ' "end"')
    assert after == before.replace(b"old", b"new")
