"""examples/code_review.py: findings, exit codes, and what it refuses."""

import json
from pathlib import Path

import pytest

from ferrule.testing import ScriptedModel, function_call, step
from tests.examples.running import git, repository, run

BEFORE = "def mean(xs):\n    return sum(xs) / len(xs) if xs else 0\n"
AFTER = "def mean(xs):\n    return sum(xs) / len(xs)\n"


@pytest.fixture
def branch(tmp_path: Path) -> Path:
    """A repository whose branch takes a check away."""
    place = repository(tmp_path / "project", {"stats.py": BEFORE, "README": "stats\n"})
    git(place, "switch", "-q", "-c", "faster")
    (place / "stats.py").write_text(AFTER)
    git(place, "commit", "-q", "-am", "No needless check")
    return place


def review(*findings: dict[str, object]) -> str:
    return json.dumps({"summary": "Takes a check away.", "findings": findings})


def finding(severity: str) -> dict[str, object]:
    return {"file": "stats.py", "line": 2, "severity": severity, "problem": "Fails for [].", "fix": "Keep the check."}


def test_an_error_is_told_with_its_place_and_fails(branch: Path) -> None:
    look = function_call("shell_command", {"command": "cat stats.py; echo changed > stats.py"})
    looked = step(review(finding("error"), finding("warning")), expect="Read-only file system")
    with ScriptedModel([look, looked]) as model:
        done = run("code_review.py", "-C", branch, base_url=model.base_url)
        model.check()
        asked = model.requests[0].user_text
    assert "-    return sum(xs) / len(xs) if xs else 0" in asked and "+    return sum(xs) / len(xs)" in asked
    assert done.stdout.splitlines() == [
        "stats.py:2: error: Fails for []. Keep the check.",
        "stats.py:2: warning: Fails for []. Keep the check.",
        "Takes a check away.",
    ]
    assert "shell_command" in done.stderr and done.returncode == 1
    assert (branch / "stats.py").read_text() == AFTER


def test_warnings_pass_and_a_finding_without_a_line_is_asked_for_again(branch: Path) -> None:
    wrong = review({"file": "stats.py", "severity": "warning"})
    with ScriptedModel([wrong, review(finding("warning"))]) as model:
        done = run("code_review.py", "-C", branch, base_url=model.base_url)
        model.check()
    assert done.returncode == 0 and done.stdout.startswith("stats.py:2: warning")


def test_what_cannot_be_reviewed_is_told(branch: Path, tmp_path: Path) -> None:
    for args, code, told in [
        (("README",), 0, "nothing has changed"),
        ((), 2, "No model is configured: set OPENAI_API_KEY"),
        (("--base", "gone"), 2, "Not a valid object name gone"),
        (("-C", tmp_path), 2, "not a git repository"),
    ]:
        done = run("code_review.py", "-C", branch, *args)
        assert done.returncode == code and told in done.stdout + done.stderr and "Traceback" not in done.stderr
