"""Custom prompts on the command line."""

import pytest

from ferrule.testing import ScriptedModel
from tests.cli.command import Place


@pytest.fixture
def desk(place: Place) -> Place:
    (place.home / "prompts").mkdir(parents=True)
    (place.home / "prompts" / "review.md").write_text(
        "---\ndescription: Reviews a file\nargument-hint: FILE=...\n---\nReview $FILE with $$care.\n"
    )
    return place


def test_exec_says_what_the_prompt_stands_for(desk: Place) -> None:
    with ScriptedModel(["Done.", "Done.", "Done."]) as model:
        flags = ("--base-url", model.base_url, "-m", "m", "-s", "danger-full-access")
        assert desk.run("exec", *flags, '/prompts:review FILE="a b.py"').code == 0
        assert desk.run("exec", *flags, "-", stdin=b"/review FILE=a").code == 0
        assert desk.run("exec", *flags, "resume", "--last", "/prompts:review FILE=c").code == 0
        said = [request.user_text.splitlines()[-1] for request in model.requests]
    assert said == ["Review a b.py with $$care.", "/review FILE=a", "Review c with $$care."]


def test_a_mistake_is_one_sentence_before_anything_happens(desk: Place) -> None:
    for prompt, why in (("/prompts:reviw x", "did you mean /prompts:review?"), ("/prompts:review", "needs FILE=...")):
        done = desk.run("exec", "--base-url", "http://127.0.0.1:9", "-m", "m", prompt)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1) and why in done.err


def test_the_list(desk: Place) -> None:
    (desk.home / "prompts" / "loop.md").symlink_to("loop.md")
    done = desk.run("prompts", "list")
    assert (done.code, done.out) == (0, "/prompts:review FILE=...  Reviews a file\n")
    assert "loop.md cannot be read" in done.err
    [line] = desk.run("prompts", "list", "--json").lines
    assert line == {
        "name": "review", "description": "Reviews a file", "argument_hint": "FILE=...",
        "path": str(desk.home / "prompts" / "review.md"),
    }  # fmt: skip
    for file in (desk.home / "prompts").iterdir():
        file.unlink()
    done = desk.run("prompts", "list")
    assert done.out == f"there are no prompts; write one to {desk.home}/prompts/NAME.md\n"
