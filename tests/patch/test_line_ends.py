"""Line ends: each line keeps its own, new ones get the file's, and an old Mac's carriage returns are line ends too."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.patch import MatchError, ParseError, PlainFiles, apply_patch, parse, plan
from tests.patch.tree import edited, patch, update

WORDS = ("one", "two", "three", "four", "five", "six")


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16-le", "utf-32-be", "cp932"])
@pytest.mark.parametrize("last", ["three\r", "three"])
def test_n043_a_carriage_return_alone_ends_lines(tmp_path: Path, codec: str, last: str) -> None:
    def data(text: str) -> bytes:
        return ("\ufeff" * codec.startswith("utf-16") + text).encode(codec)

    head = "日本語のテスト" if codec == "cp932" else "größe"
    before, after = data(f"{head}\rtwo\r{last}"), data(f"{head}\r2\rand a half\r{last}")
    assert edited(tmp_path, before, "@@", f" {head}", "-two", "+2", "+and a half") == after


def test_n043_the_diff_of_a_file_with_carriage_returns_shows_its_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\rtwo\rthree\r")
    planned = plan(parse(update("f", "@@", "-two", "+2")), PlainFiles(), str(tmp_path)).operations[0]
    assert (planned.added, planned.deleted) == (1, 1)
    assert planned.unified_diff() == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


def test_n043_a_file_that_is_written_anew_gets_line_feeds(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\rtwo\r")
    text = patch("*** Delete File: f", "*** Add File: f", "+one", "+two")
    planned = plan(parse(text), PlainFiles(), str(tmp_path)).operations[0]
    assert (planned.added, planned.deleted) == (2, 2)
    apply_patch(text, str(tmp_path))
    assert (tmp_path / "f").read_bytes() == b"one\ntwo\n"


def test_n043_a_carriage_return_within_a_line_is_content(tmp_path: Path) -> None:
    before = b"10%\r20%\r30%\ndone\nlast\n"
    assert edited(tmp_path, before, "@@", "-done", "+DONE") == before.replace(b"done", b"DONE")
    assert edited(tmp_path, before, "@@", "-10%\r20%\r30%", "+100%") == b"100%\ndone\nlast\n"


@settings(deadline=None, database=None)
@given(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=2, max_size=len(WORDS)), st.booleans(), st.data())
def test_n046_every_line_that_is_not_changed_keeps_its_end(
    tmp_path_factory: pytest.TempPathFactory, ends: list[str], open_end: bool, data: st.DataObject
) -> None:
    lines = list(zip(WORDS, ends, strict=False))
    if open_end:
        lines[-1] = (lines[-1][0], "")
    at = data.draw(st.integers(0, len(lines) - 2))
    before = "".join(word + end for word, end in lines).encode()
    after = edited(tmp_path_factory.mktemp("t"), before, "@@", f"-{lines[at][0]}", "+new")
    kept = ["".join(line).encode() for line in lines]
    given_ends = [end for _, end in lines if end]
    crlf, half = given_ends.count("\r\n"), len(given_ends) / 2
    most = b"\r\n" if crlf > half or (crlf == half and ends[0] == "\r\n") else b"\n"
    assert after == b"".join(kept[:at]) + b"new" + most + b"".join(kept[at + 1 :])


def test_n044_a_patch_with_carriage_returns_alone_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\n")
    whole = update("f", "@@", "-one", "+1")
    head, rest = whole.split("\n", 1)
    for text in (whole.replace("\n", "\r"), f"{head}\n{rest}".replace("\n@@\n-one\n", "\r@@\r-one\r")):
        with pytest.raises(ParseError, match=r"Its lines end with a carriage return alone \(\\r\): send line feeds"):
            apply_patch(text, str(tmp_path))


@pytest.mark.parametrize("data", [b"\x89PNG\0\r\n\x1a\n\0\0", b"a\0b\nc\n"])
def test_n043_a_binary_file_is_named(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(MatchError, match="It is a binary file"):
        edited(tmp_path, data, "@@", "-nothing like it", "+x")
    assert (tmp_path / "f.txt").read_bytes() == data
