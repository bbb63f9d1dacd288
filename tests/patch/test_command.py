import io
from pathlib import Path

import pytest

from ferrule.patch.command import main
from tests.patch.tree import patch, snapshot, update

GOOD = patch("*** Add File: n", "+x", "*** Update File: a", "@@", "-a", "+b", "*** Delete File: d")
SUMMARY = "Success. Updated the following files:\nA n\nM a\nD d\n"


def run(tmp_path: Path, *argv: str, stdin: bytes = b"") -> tuple[str, str, int]:
    return main(argv, io.BytesIO(stdin), str(tmp_path))


@pytest.mark.parametrize("by_stdin", [False, True])
def test_success(tmp_path: Path, by_stdin: bool) -> None:
    (tmp_path / "a").write_bytes(b"a\n")
    (tmp_path / "d").touch()
    result = run(tmp_path, stdin=GOOD.encode()) if by_stdin else run(tmp_path, GOOD)
    assert result == (SUMMARY, "", 0)
    assert snapshot(tmp_path) == {"a": b"b\n", "n": b"x\n"}


def test_the_patch_is_wrong(tmp_path: Path) -> None:
    out, err, code = run(tmp_path, GOOD)
    assert (out, code) == ("", 1)
    assert err.startswith(f"Failed to read file to update {tmp_path}/a: No such file or directory (os error 2)")
    assert run(tmp_path, update("a")) == (
        "",
        "Invalid patch hunk on line 2: Update file hunk for path 'a' is empty\n",
        1,
    )
    assert run(tmp_path, patch()) == ("", "No files were modified.\n", 1)
    assert run(tmp_path, "") == ("", "Invalid patch: The last line of the patch must be '*** End Patch'\n", 1)


def test_wrong_usage(tmp_path: Path) -> None:
    assert run(tmp_path, "a", "b") == ("", "Error: apply_patch accepts exactly one argument.\n", 2)
    assert run(tmp_path) == ("", "Usage: apply_patch 'PATCH'\n       echo 'PATCH' | apply_patch\n", 2)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    assert run(tmp_path, "\udcff") == ("", "Error: apply_patch requires a UTF-8 PATCH argument.\n", 1)
    out, err, code = run(tmp_path, stdin=b"\xff")
    assert (out, code) == ("", 1)
    assert err.startswith("Error: Failed to read PATCH from stdin.\n")


def test_overwriting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "n").write_bytes(b"old\n")
    out, err, code = run(tmp_path, patch("*** Add File: n", "+x"))
    assert (out, code) == ("", 1)
    assert err.startswith("n already exists")
