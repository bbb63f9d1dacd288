"""examples/team.py: the parts of the plan are done beside each other, and their reports reach the one who writes."""

import json
from pathlib import Path

from ferrule.testing import ScriptedModel, Usage, function_call, step
from tests.examples.running import run

PLAN = json.dumps({"parts": [{"title": "Storage", "task": "look at A"}, {"title": "Tests", "task": "look at B"}]})
QUESTION = "What breaks?"


def ask(folder: Path, model: ScriptedModel, *args: object) -> tuple[int, str, str]:
    done = run("team.py", "-C", folder, QUESTION, *args, base_url=model.base_url)
    return done.returncode, done.stdout, done.stderr


def test_the_reports_reach_the_one_who_writes(tmp_path: Path) -> None:
    (tmp_path / "db.py").write_text("sqlite3\n")
    with ScriptedModel([step(PLAN, usage=Usage(100, 10)), step("It breaks db.py.", usage=Usage(200, 20))]) as model:
        look = function_call("shell_command", {"command": "cat db.py"})
        model.play(look, step("db.py uses it.", expect="sqlite3", usage=Usage(1000, 5)), when="look at A")
        model.play(step("No tests.", usage=Usage(300, 3)), when="look at B")
        code, out, err = ask(tmp_path, model)
        model.check()
        told = model.last_request.user_text
    assert "db.py uses it." in told and "No tests." in told
    assert code == 0 and "\nIt breaks db.py.\n" in out
    assert out.splitlines()[1].split() == ["Tests", "completed", "303", "tokens"]
    assert "· Storage: shell_command" in err


def test_what_was_found_is_printed_when_the_budget_is_used_up(tmp_path: Path) -> None:
    with ScriptedModel([step(PLAN, usage=Usage(100, 10))]) as model:
        model.play(step("db.py uses it.", usage=Usage(1000, 5)), when="look at A")
        model.play(step("No tests.", usage=Usage(300, 3)), when="look at B")
        code, out, err = ask(tmp_path, model, "--budget", 1400)
        model.check()
    assert code == 1 and "\nStorage: db.py uses it.\n\nTests: No tests.\n\n1,418 of 1,400 tokens\n" in out
    assert "team: stopped: the budget is used up, 1,308 of 1,290 tokens" in err


def test_a_wrong_folder_is_told(tmp_path: Path) -> None:
    done = run("team.py", QUESTION, "-C", tmp_path / "gone")
    assert done.returncode == 2 and "there is no folder" in done.stderr and "Traceback" not in done.stderr
