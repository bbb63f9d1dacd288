"""What people type who come from other agents, and the small commands around it."""

import subprocess
import sys

import pytest

from ferrule.cli.habits import ANSWERS, answer_habits
from ferrule.cli.main import COMMANDS, main
from ferrule.testing import ScriptedModel
from tests.cli.command import Place
from tests.cli.test_exec import exec_against


@pytest.mark.parametrize(
    ("flag", "mode"),
    [
        ("--full-auto", "workspace-write"),
        ("--yolo", "danger-full-access"),
        ("--dangerously-bypass-approvals-and-sandbox", "danger-full-access"),
        ("--dangerously-skip-permissions", "danger-full-access"),
    ],
)
def test_flags_of_others_choose_our_modes(place: Place, flag: str, mode: str) -> None:
    with ScriptedModel(["Done."]) as model:
        done = exec_against(place, model, flag, "--skip-git-repo-check", "go")
    assert done.code == 0, done.err
    [context] = [line["payload"] for line in place.rollout() if line["type"] == "turn_context"]
    assert (context["sandbox_policy"]["type"], context["approval_policy"]) == (mode, "never")


def test_our_flag_beside_theirs_counts(place: Place) -> None:
    with ScriptedModel(["Done."]) as model:
        exec_against(place, model, "--yolo", "-s", "read-only", "go")
    [context] = [line["payload"] for line in place.rollout() if line["type"] == "turn_context"]
    assert context["sandbox_policy"]["type"] == "read-only"


@pytest.mark.parametrize("flag", sorted(ANSWERS))
def test_a_flag_that_we_lack_is_answered_with_ours(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", flag, "x", "go"]) == 2
    assert capsys.readouterr().err == f"ferrule: there is no {flag} here: {ANSWERS[flag]}\n"


def test_what_stands_behind_two_dashes_is_no_flag() -> None:
    answer_habits(["go", "--", "--print"])


def test_an_ephemeral_run_leaves_no_session(place: Place) -> None:
    with ScriptedModel(["Done."]) as model:
        assert exec_against(place, model, "--ephemeral", "go").code == 0
    assert not list(place.home.rglob("rollout-*"))


def test_resume_is_a_command(place: Place) -> None:
    with ScriptedModel(["One.", "Two."]) as model:
        exec_against(place, model, "one")
        done = place.run("resume", "--last", "two")
    assert (done.code, done.out) == (0, "Two.\n"), done.err


def test_the_package_runs_and_alone_it_shows_its_help(place: Place) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "ferrule"], env=place.env(), capture_output=True, check=True, text=True
    )
    assert shown.stdout.startswith("usage: ferrule COMMAND") and shown.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_names_every_command_and_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS) and "turn-timeout" in script


def test_bash_completes(place: Place) -> None:
    program = """
    source <(ferrule completion bash)
    COMP_WORDS=(ferrule exec --turn) COMP_CWORD=2; _ferrule; echo "${COMPREPLY[@]}"
    COMP_WORDS=(ferrule doc) COMP_CWORD=1; _ferrule; echo "${COMPREPLY[@]}"
    """
    ours = f'ferrule() {{ {sys.executable} -m ferrule "$@"; }}\n'
    done = subprocess.run(["bash", "-c", ours + program], env=place.env(), capture_output=True, check=True, text=True)
    assert done.stdout == "--turn-timeout\ndoctor\n"
