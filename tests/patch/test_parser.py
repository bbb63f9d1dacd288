import pytest

from ferrule.patch import AddFile, Chunk, DeleteFile, FileProgress, ParseError, PatchParser, UpdateFile, parse
from tests.patch.tree import patch, update

HEADERS = "Valid hunk headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"
SIGNS = "Every line should start with ' ' (context line), '+' (added line), or '-' (removed line)"


def test_every_kind_of_hunk() -> None:
    parsed = parse(
        patch(
            "*** Add File: new/a.txt",
            "+one",
            "+",
            "*** Delete File: gone.txt",
            "*** Update File: old.py",
            "*** Move to: new.py",
            "@@ class A:",
            " keep",
            "-out",
            "+in",
            "*** End of File",
        )
    )
    assert parsed.hunks == (
        AddFile("new/a.txt", ("one", ""), 2),
        DeleteFile("gone.txt", 5),
        UpdateFile("old.py", "new.py", (Chunk(("class A:",), (" keep", "-out", "+in"), True, 8),), 6),
    )


@pytest.mark.parametrize(
    ("lines", "chunks"),
    [
        (("-a",), [((), ("-a",), False)]),
        (("@@", "-a", "", " b"), [((), ("-a", " ", " b"), False)]),
        (("", "@@", "-a"), [((), (" ",), False), ((), ("-a",), False)]),
        (("@@ class A:", "@@   def f():", "-a"), [(("class A:", "  def f():"), ("-a",), False)]),
        (("@@", "@@ f", "-a"), [(("f",), ("-a",), False)]),
        (("@@ f  ", "-a  "), [(("f",), ("-a  ",), False)]),
        (("*** End of File", "@@", "-a"), [((), ("-a",), False)]),
        (("@@", "-a", "*** End of File", "", "@@", "+b"), [((), ("-a",), True), ((), ("+b",), False)]),
        (("@@", "-a", " *** Update File: x"), [((), ("-a", " *** Update File: x"), False)]),
        (("@@", "-a", " *** End Patch", "+b"), [((), ("-a", " *** End Patch", "+b"), False)]),
    ],
)
def test_the_chunks_of_an_update(lines: tuple[str, ...], chunks: list[tuple[object, object, bool]]) -> None:
    (hunk,) = parse(update("f", *lines)).hunks
    assert isinstance(hunk, UpdateFile)
    assert [(chunk.anchors, chunk.lines, chunk.at_end) for chunk in hunk.chunks] == chunks


@pytest.mark.parametrize(
    "text",
    [
        "  " + update("f", "@@", "-a"),
        update("f", "@@", "-a").replace("\n", "\r\n"),
        update("f", "@@", "-a").replace("*** Update", "  *** Update"),
        "<<EOF\n" + update("f", "@@", "-a") + "EOF",
        "<<'EOF'\n" + update("f", "@@", "-a") + "EOF\n",
        '<<"EOF"\n' + update("f", "@@", "-a") + "\nEOF\n\n",
        "<<'EOF'\n" + update("f", "@@", "-a").replace("*** End", "  *** End") + "EOF",
        update("f", "@@", "-a") + "\n*** End Patch\n",
    ],
)
def test_forms_that_mean_the_same(text: str) -> None:
    (hunk,) = parse(text).hunks
    assert isinstance(hunk, UpdateFile)
    assert [chunk.lines for chunk in hunk.chunks] == [("-a",)]


def test_one_carriage_return_is_dropped() -> None:
    (hunk,) = parse("*** Begin Patch\n*** Add File: f\n+a\r\r\n*** End Patch").hunks
    assert isinstance(hunk, AddFile)
    assert hunk.lines == ("a\r",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid patch: The last line of the patch must be '*** End Patch'"),
        ("*** Begin Patch", "Invalid patch: The last line of the patch must be '*** End Patch'"),
        ("bad", "Invalid patch: The first line of the patch must be '*** Begin Patch'"),
        (patch("*** Delete File: a") + "bad", "Invalid patch: The last line of the patch must be '*** End Patch'"),
        ("<<'EOF\"\n" + patch() + "EOF", "Invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("<<EOF\n" + patch() + "END", "Invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("<<EOF\n*** Begin Patch\n+a\nEOF", "Invalid patch: The last line of the patch must be '*** End Patch'"),
        (
            patch("*** Frob File: a"),
            f"Invalid patch hunk on line 2: '*** Frob File: a' is not a valid hunk header. {HEADERS}",
        ),
        (
            patch("*** Add File: "),
            f"Invalid patch hunk on line 2: '*** Add File:' is not a valid hunk header. {HEADERS}",
        ),
        (
            patch("*** Add File: a", "+x", "", "+y"),
            f"Invalid patch hunk on line 4: '' is not a valid hunk header. {HEADERS}",
        ),
        (
            patch("*** Delete File: a", "bad"),
            f"Invalid patch hunk on line 3: 'bad' is not a valid hunk header. {HEADERS}",
        ),
        (update("a"), "Invalid patch hunk on line 2: Update file hunk for path 'a' is empty"),
        (update("a", "@@"), "Invalid patch hunk on line 4: Update hunk does not contain any lines"),
        (update("a", "@@", "*** End of File"), "Invalid patch hunk on line 4: Update hunk does not contain any lines"),
        (
            update("a", "@@", "*** Update File: b"),
            f"Invalid patch hunk on line 4: Unexpected line found in update hunk: '*** Update File: b'. {SIGNS}",
        ),
        (update("a", "zone"), f"Invalid patch hunk on line 3: Unexpected line found in update hunk: 'zone'. {SIGNS}"),
        (
            update("a", "-old", "bad"),
            "Invalid patch hunk on line 4: Expected update hunk to start with a @@ context marker, got: 'bad'",
        ),
        (
            update("a", "-old", "*** End of File", "+new"),
            "Invalid patch hunk on line 5: Expected update hunk to start with a @@ context marker, got: '+new'",
        ),
        (patch("*** Environment ID: "), "Invalid patch: apply_patch environment_id cannot be empty"),
        (
            patch("*** Environment ID: a", "*** Environment ID: b"),
            "Invalid patch: apply_patch environment_id cannot be specified more than once",
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_reference(text: str, message: str) -> None:
    with pytest.raises(ParseError) as failed:
        parse(text)
    assert str(failed.value).split("\n")[0] == message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("```\n" + patch(), "code fence"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n", "unified diff"),
        (update("a", "@@ -1,2 +1,2 @@", "-x") + "x", "Line 6 stands after it"),
        (update("a", "@@", "-x", "\\ No newline at end of file"), "leave it out"),
        (update("a", "@@x", "-x"), "one space"),
        (patch("*** Add File: a", "x"), "starts with '+'"),
        ("*** Begin Patch\n*** Update File: a\n@@\n-x\n+yy", "ends with '+yy'"),
        ("<<EOF\n" + patch("*** Delete File: a"), "heredoc"),
    ],
)
def test_a_hint_tells_the_likely_cause(text: str, hint: str) -> None:
    with pytest.raises(ParseError) as failed:
        parse(text)
    assert hint in str(failed.value)


def test_the_tool_words_an_error_its_own_way() -> None:
    with pytest.raises(ParseError) as failed:
        parse(update("a.txt"))
    assert failed.value.verification_text == "invalid hunk at line 2, Update file hunk for path 'a.txt' is empty"
    with pytest.raises(ParseError) as failed:
        parse("")
    assert failed.value.verification_text == "invalid patch: The last line of the patch must be '*** End Patch'"


def test_a_path_with_nul_and_half_a_surrogate_are_refused() -> None:
    with pytest.raises(ParseError, match="NUL"):
        parse(patch("*** Delete File: a\0b"))
    with pytest.raises(ParseError, match=r"U\+D800"):
        parse(patch("*** Add File: a", "+\ud800"))


def test_the_environment_line_is_kept() -> None:
    assert parse(patch("*** Environment ID: box", "*** Delete File: a")).environment == "box"


def test_a_long_error_is_cut() -> None:
    with pytest.raises(ParseError) as failed:
        parse(update("a", "x" * 5000))
    assert len(str(failed.value)) <= 1500


def test_progress_as_the_patch_arrives() -> None:
    parser = PatchParser()
    assert parser.feed("*** Begin Patch\n*** Add Fi") == ()
    assert parser.feed("le: a\n+1\n+2") == (FileProgress("add", "a", None, 1, 0),)
    assert parser.feed("\n*** Update File: b\n*** Move to: c\n@@\n-x\n+y\n") == (
        FileProgress("add", "a", None, 2, 0),
        FileProgress("update", "b", "c", 1, 1),
    )
    assert parser.feed("+z\n") == (FileProgress("update", "b", "c", 2, 1),)
    assert parser.feed("*** Delete File: d\n*** End Patch") == (FileProgress("delete", "d", None, 0, 0),)
    assert len(parser.finish().hunks) == 3
