"""Custom prompts: what a text stands for."""

import os
from pathlib import Path

import pytest

from ferrule import expand_prompt
from ferrule.prompts import MAX_BYTES, BadPrompt, custom_prompts, fill_in
from ferrule.protocol.errors import UsageError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    return tmp_path


def write(home: Path, name: str, text: str) -> Path:
    file = home / "prompts" / f"{name}.md"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("body", "arguments", "expanded"),
    [
        ("Fix #$1 for $2, not $3.", "12 'the boss'", "Fix #12 for the boss, not ."),
        ("All: $ARGUMENTS.", 'a  "b c"\nd', "All: a b c d."),
        ("None: $ARGUMENTS, $1.", "", "None: , ."),
        ("$$1 $$ARGUMENTS $$$1 costs $ 5, $x, $0, $10", "a", "$$1 $$ARGUMENTS $$a costs $ 5, $x, $0, a0"),
        ("$1 $2", "$2 $1", "$2 $1"),
        ("Ask: $ARGUMENTS", "what's that", "Ask: what's that"),
        ("Nothing to fill in.", "a b", "Nothing to fill in."),
        ("Pair $USER with $BRANCH_2, $USER!", 'USER="Ann Lee" BRANCH_2=a=b', "Pair Ann Lee with a=b, Ann Lee!"),
        ("$KEY $1 $ARGUMENTS $$KEY $$OTHER", "KEY=$1 MORE=x", "$1 $1 $ARGUMENTS $$KEY $$OTHER"),
        ("$KEY.", "KEY=", "."),
    ],
)
def test_arguments_are_filled_in_as_codex_does(body: str, arguments: str, expanded: str) -> None:
    assert fill_in(body, arguments, "/prompts:x") == expanded


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("", "/prompts:x needs USER=... BRANCH=... behind it"),
        ("USER=a", "/prompts:x needs BRANCH=... behind it"),
        ("USER=a BRANCH=b stray", "/prompts:x takes KEY=value, not 'stray'"),
        ("USER=a =b", "/prompts:x takes KEY=value, not '=b'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        fill_in("$USER on $BRANCH", arguments, "/prompts:x")
    assert str(refused.value).startswith(why)


def test_a_prompt_is_read_without_its_head(home: Path) -> None:
    write(home, "review", "---\ndescription: Reviews\nargument-hint: [file]\n---\n\nReview $1.\n")
    assert expand_prompt("/prompts:review a.py", str(home)) == "Review a.py."
    assert expand_prompt("/prompts:review\na.py\n", str(home)) == "Review a.py."
    assert expand_prompt("/prompts:review", str(home)) == "Review ."


@pytest.mark.parametrize(
    "text",
    [
        "/review a",
        "/prompts",
        "/prompts: review",
        "/prompts:",
        "/prompts/x",
        " /prompts:none",
        "see /prompts:none",
        "/",
        "",
    ],
)
def test_any_other_text_stands_for_itself(home: Path, text: str) -> None:
    write(home, "review", "Review $1.")
    assert expand_prompt(text, str(home)) == text


def test_an_unknown_name_is_refused_and_near_ones_are_named(home: Path) -> None:
    def refusal(text: str) -> str:
        with pytest.raises(UsageError) as refused:
            expand_prompt(text, str(home))
        return str(refused.value)

    assert "there are none yet; write one to" in refusal("/prompts:revew")
    for name in ("review", "release", ".hidden"):
        write(home, name, "text")
    assert "did you mean /prompts:review?" in refusal("/prompts:revew x")
    assert "there are release, review (a space" in refusal("/prompts:zzz")
    (home / "secret.md").write_text("no prompt")
    for name in ("../secret", "/etc/passwd", "a\0b", "x" * 300, "\ud800"):
        assert refusal(f"/prompts:{name}")
    write(home, "empty", "---\ndescription: d\n---\n \n")
    assert "says nothing" in refusal("/prompts:empty")


def test_files_that_are_none_are_told_and_never_waited_for(home: Path) -> None:
    good = write(home, "good", "text")
    os.mkfifo(home / "prompts" / "pipe.md")
    (home / "prompts" / "folder.md").mkdir()
    (home / "prompts" / "linked.md").symlink_to(good)
    (home / "prompts" / "lost.md").symlink_to("nowhere")
    (home / "prompts" / "zero.md").symlink_to("/dev/zero")
    (home / "prompts" / "notes.txt").write_text("no prompt")
    write(home, "huge", "x" * (MAX_BYTES + 1))
    found = {Path(one.path).stem: one.text if isinstance(one, BadPrompt) else "" for one in custom_prompts(str(home))}
    assert found == {
        "good": "", "linked": "", "pipe": "is a named pipe, not a file", "folder": "is a folder, not a file",
        "lost": "leads to no file", "zero": "is a device, not a file", "huge": "is larger than 256 KiB",
    }  # fmt: skip
    with pytest.raises(UsageError, match="is a named pipe"):
        expand_prompt("/prompts:pipe", str(home))
