import subprocess
from pathlib import Path

import pytest

from ferrule.patch.turn_diff import Change, turn_diff


def of(*changes: Change) -> str:
    return turn_diff(changes, "/r")


def test_one_changed_file() -> None:
    assert of(Change("/r/a", b"1\n2\n", b"1\ntwo\n")) == (
        "diff --git a/a b/a\n"
        "index 1191247b6d9a206f6ba3d8ac79e26d041dd86941..8b1fe8f8a8b2e60e0d34ff1b8b9a7ea97a2c3d9c\n".replace(
            "8b1fe8f8a8b2e60e0d34ff1b8b9a7ea97a2c3d9c", oid(b"1\ntwo\n")
        )
        + "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+two\n"
    )


def oid(content: bytes) -> str:
    ran = subprocess.run(["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True)
    return ran.stdout.decode().strip()


def test_changes_add_up() -> None:
    text = of(Change("/r/a", b"1\n", b"2\n"), Change("/r/a", b"2\n", b"3\n"))
    assert text.count("diff --git") == 1
    assert "-1\n+3\n" in text


@pytest.mark.parametrize(
    "changes",
    [
        (Change("/r/a", b"1\n", b"2\n"), Change("/r/a", b"2\n", b"1\n")),
        (Change("/r/a", None, b"2\n"), Change("/r/a", b"2\n", None)),
        (Change("/r/a", b"1\n", None), Change("/r/a", None, b"1\n")),
        (Change("/r/a", b"1\n", b"1\n", "/r/b"), Change("/r/b", b"1\n", b"1\n", "/r/a")),
    ],
)
def test_changes_that_cancel_out_give_nothing(changes: tuple[Change, ...]) -> None:
    assert of(*changes) == ""


def test_files_are_sorted_and_relative_to_the_root() -> None:
    text = of(Change("/r/b", b"1", b"2"), Change("/r/a/c", None, b""), Change("/x", b"1", None))
    assert [line for line in text.split("\n") if line.startswith("diff")] == [
        "diff --git a/a/c b/a/c",
        "diff --git a/b b/b",
        "diff --git a/../x b/../x",
    ]


def test_binary_and_undecodable_content() -> None:
    assert "Binary files a/a and /dev/null differ\n" in of(Change("/r/a", b"\0", None))
    assert "-\ufffd\n+x\n" in of(Change("/r/a", b"\x81\n", b"x\n"))


CASES: dict[str, tuple[dict[str, bytes], list[Change]]] = {
    "rename": ({"a": b"1\n"}, [Change("a", b"1\n", b"1\n", "b")]),
    "rename and edit": ({"a": b"1\n2\n"}, [Change("a", b"1\n2\n", b"1\nx\n", "d/b")]),
    "rename twice": ({"a": b"1\n"}, [Change("a", b"1\n", b"2\n", "b"), Change("b", b"2\n", b"3\n", "c")]),
    "edit, then rename": ({"a": b"1\n"}, [Change("a", b"1\n", b"2\n"), Change("a", b"2\n", b"2\n", "b")]),
    "rename over another": ({"a": b"1\n", "b": b"2\n"}, [Change("a", b"1\n", b"x\n", "b", b"2\n")]),
    "swap through a third": (
        {"a": b"1\n", "b": b"2\n"},
        [Change("a", b"1\n", b"1\n", "t"), Change("b", b"2\n", b"2\n", "a"), Change("t", b"1\n", b"1\n", "b")],
    ),
    "rename and a new file in its place": (
        {"a": b"1\n"},
        [Change("a", b"1\n", b"2\n", "b"), Change("a", None, b"new\n")],
    ),
    "create, rename": ({}, [Change("a", None, b"1\n"), Change("a", b"1\n", b"2\n", "b")]),
    "rename, delete": ({"a": b"1\n"}, [Change("a", b"1\n", b"2\n", "b"), Change("b", b"2\n", None)]),
    "no newline": ({"a": b"1\n2"}, [Change("a", b"1\n2", b"1\n2\n3")]),
    "empty": ({"a": b""}, [Change("a", b"", b"x\n"), Change("n", None, b"")]),
    "crlf": ({"a": b"1\r\n2\r\n"}, [Change("a", b"1\r\n2\r\n", b"1\r\nx\r\n")]),
    "far apart": (
        {"a": b"".join(b"%d\n" % n for n in range(50))},
        [
            Change(
                "a",
                b"".join(b"%d\n" % n for n in range(50)),
                b"".join(b"%d\n" % (n * 100 if n in (3, 9, 40) else n) for n in range(50) if n != 30),
            )
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_git_applies_the_net_diff(tmp_path: Path, name: str) -> None:
    """Applied by git to the tree before the turn it gives the tree after it."""
    tree, changes = CASES[name]
    after: dict[str, bytes] = dict(tree)
    for change in changes:
        after.pop(change.path, None)
        if change.after is not None:
            after[change.move_to or change.path] = change.after
    absolute = [
        change._replace(path=f"/r/{change.path}", move_to=f"/r/{change.move_to}" if change.move_to else None)
        for change in changes
    ]
    for path, content in tree.items():
        (tmp_path / path).write_bytes(content)
    text = turn_diff(absolute, "/r")
    if text:
        subprocess.run(["git", "apply", "-"], input=text.encode(), cwd=tmp_path, check=True, capture_output=True)
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == after


def test_changes_far_apart_in_a_large_file_stay_small() -> None:
    """Blank lines and braces recur hundreds of times, which must not make the file one block."""
    lines = [b"" if number % 7 == 0 else b"}" if number % 5 == 0 else b"line %d" % number for number in range(20_000)]
    changed = [*lines]
    changed[3] = b"first"
    del changed[10_000]
    changed[19_990:19_990] = [b"", b"last"]
    text = of(Change("/r/a", b"\n".join(lines), b"\n".join(changed)))
    assert len(text.split("\n")) < 50
    assert text.count("\n@@ ") == 3
