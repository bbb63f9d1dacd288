"""The entry, `call`, `tools`, `demo`, `doctor`, `apply-patch`, `policy check`, and bad input at each."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule import __version__
from ferrule.cli.main import COMMANDS, main
from ferrule.testing import ScriptedModel
from tests.cli.command import COMMAND, FULL_ACCESS, SOURCE, Place

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


@pytest.fixture
def inside(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The place as this very process's environment, for `main` without a child."""
    for name in ("OPENAI_API_KEY", "FERRULE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FERRULE_HOME", str(place.home))
    monkeypatch.chdir(place.cwd)
    return place


def modules_after(*arguments: str) -> set[str]:
    code = f"import sys; from ferrule.cli.main import main; main({list(arguments)!r}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_import_nothing(flag: str) -> None:
    assert not modules_after(flag) & {"argparse", "asyncio", "msgspec", "pydantic", "rich", "json", "tomllib"}


def test_every_command_is_listed_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in COMMANDS:
        assert name in listed
        try:
            code = main([name, "--help"])
        except SystemExit as end:  # argparse's own way to end after help
            code = int(str(end.code))
        assert code == 0 and "usage: ferrule" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["exec", "--help"], ["tools"]])
def test_a_reader_that_is_gone_is_no_complaint(place: Place, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=place.cwd, env=place.env(), stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ferrule {__version__}\n"


def test_nothing_heavy_is_imported_before_the_first_request(place: Place) -> None:
    hook = (
        "import sys\n"
        "def watch(event, arguments):\n"
        "    if event == 'socket.connect': print('MODULES', *sys.modules, file=sys.stderr)\n"
        "sys.addaudithook(watch)\n"
        "from ferrule.cli.main import main\n"
        "sys.exit(main())\n"
    )
    with ScriptedModel(["Done."]) as model:
        done = subprocess.run(
            [sys.executable, "-c", hook, "exec", "--base-url", model.base_url, "-m", "m", "go"],
            cwd=place.cwd, env=place.env(), capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        model.check()
    loaded = next(line for line in done.stderr.splitlines() if line.startswith("MODULES")).split()
    heavy = {"pydantic", "rich", "mcp", "ferrule.testing", "starlark", "tree_sitter", "openai"}
    assert "httpx2" in loaded
    assert heavy & set(loaded) == set()


BAD = {
    "prompt without command": (["fix the bug"], 2, "`ferrule exec 'fix the bug'`"),
    "flag before command": (["-m", "x", "exec", "go"], 2, "flags come after the command, as in `ferrule exec -m ...`"),
    "unknown command": (["nosuch"], 2, "there is no command 'nosuch'; `ferrule --help` lists those there are"),
    "nothing near": (["exec", "-c", "foo=1", "go"], 2, "unknown key foo; known here are"),
    "no MCP server": (["mcp", "get", "x"], 2, "none is configured, and `ferrule mcp add` adds one"),
    "near command": (["exce"], 2, "did you mean `ferrule exec`?"),
    "no provider": (["exec", "go"], 2, "`ferrule demo` needs none"),
    "unknown flag": (["exec", "--colour", "go"], 2, "unrecognized arguments: --colour (see ferrule exec --help)"),
    "bad mode": (["exec", "-s", "all", "go"], 2, "-s: sandbox_mode must be one of read-only"),
    "bad policy": (["call", "shell_command", "-a", "maybe"], 2, "-a: approval_policy must be one of untrusted"),
    "bad wire": (["tools", "--wire", "smoke"], 2, "invalid choice: 'smoke'"),
    "bad key": (["exec", "-c", "modle=x", "go"], 2, "-c modle: unknown key modle; did you mean model?"),
    "bad profile": (["tools", "--profile", "nope"], 2, "There is no tool profile 'nope'"),
    "no directory": (["exec", "-C", "nowhere", "go"], 2, "-C: nowhere is not a directory"),
    "no added directory": (["exec", "--add-dir", "nowhere", "go"], 2, "--add-dir: nowhere is not a directory"),
    "two prompts": (["exec", "fix", "it"], 2, "put it in quotes"),
    "empty prompt": (["exec", "--base-url", "http://localhost:1/v1", " "], 2, "the prompt is empty: say what to do"),
    "no image": (["exec", "-i", "no.png", "go"], 2, "-i: no.png cannot be read: No such file or directory"),
    "no schema": (["exec", "--output-schema", "no.json", "go"], 2, "no.json cannot be read"),
    "no folder for -o": (["exec", "-o", "no/where.txt", "go"], 2, "-o: the folder of no/where.txt does not exist"),
    "no URL at all": (["exec", "--base-url", "http://[bad/v1", "go"], 2, "'http://[bad/v1' is not usable"),
    "bad URL with a key": (["exec", "--base-url", "ftp://me:s3cret@host/v1?key=s3cret", "go"], 2, "'host/v1' is not"),
    "bad URL": (["exec", "--base-url", "localhost:11434", "go"], 2, "is not usable"),
    "no session": (["exec", "resume", "--last", "go"], 2, "there is no session to resume"),
    "no id": (["exec", "resume"], 2, "--last"),
    "roots on resume": (["exec", "resume", "--last", "--add-dir", "/", "go"], 2, "give its mode too, with -s"),
    "stray --last": (["exec", "--last", "go"], 2, "resume --last"),
    "policy": (["policy", "chek"], 2, "ferrule policy check"),
    "policy without command": (["policy", "check", "--"], 2, "a command is missing"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(inside: Place, capsys: pytest.CaptureFixture[str], case: str) -> None:
    arguments, code, words = BAD[case]
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert words in err and err.startswith("ferrule: ") and err.count("\n") == 1
    assert out == "" and not inside.home.exists()


def test_bad_input_under_json_is_an_error_and_a_failed_turn(
    inside: Place, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["exec", "--json", "go"]) == 2
    out, err = capfdbinary.readouterr()
    error, failed = map(json.loads, out.splitlines())
    assert error["type"] == "error" and "ferrule demo" in error["message"]
    assert failed == {"type": "turn.failed", "error": {"message": error["message"]}}
    assert err.count(b"\n") == 1


def test_bad_configuration_names_file_and_key(inside: Place, capsys: pytest.CaptureFixture[str]) -> None:
    inside.home.mkdir(parents=True)
    (inside.home / "config.toml").write_text("max_turns = 'many'\n")
    assert main(["exec", "go"]) == 2
    assert f"{inside.home / 'config.toml'}: max_turns must be" in capsys.readouterr().err


def test_call_prints_what_the_model_reads(place: Place) -> None:
    done = place.run("call", "shell_command", '{"command": "echo hi; exit 3"}', *FULL_ACCESS)
    assert done.code == 1 and done.err == ""
    assert done.out.startswith("Exit code: 3\n") and "hi" in done.out
    told = place.run("call", "shell_command", "-", "--json", *FULL_ACCESS, stdin=b'{"command": "echo hi"}')
    assert told.code == 0
    (answer,) = told.lines
    assert answer["success"] is True and answer["output"].startswith("Exit code: 0\n")
    assert not place.home.exists(), "`call` writes no session"


def test_call_takes_a_patch_as_text_or_json(inside: Place, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "apply_patch", PATCH, *FULL_ACCESS]) == 0
    assert "A new.txt" in capfd.readouterr().out
    assert main(["call", "apply_patch", json.dumps({"input": PATCH.replace("new", "two")}), *FULL_ACCESS]) == 0
    assert (inside.cwd / "new.txt").read_text() == (inside.cwd / "two.txt").read_text() == "hello\n"


def test_call_of_an_unknown_tool_fails_as_for_the_model(inside: Place, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "shell_comand", "--json"]) == 1
    answer = json.loads(capfd.readouterr().out)
    assert answer["success"] is False and "did you mean shell_command" in answer["output"]


def test_call_names_a_picture(inside: Place, capfd: pytest.CaptureFixture[str]) -> None:
    (inside.cwd / "dot.png").write_bytes(DOT)
    assert main(["call", "view_image", '{"path": "dot.png"}', *FULL_ACCESS]) == 0
    assert capfd.readouterr().out.startswith("[image: data:image/png;base64,")


def test_tools_stand_in_columns_and_each_says_something(inside: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools", "--profile", "all", "--wire", "responses", "-m", "gpt-5.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    kinds = {line.split()[1] for line in lines}
    (column,) = {line.index(f" {line.split()[1]} ") for line in lines if line.split()[0] != line.split()[1]}
    assert "function" in kinds and column > len("str_replace_based_edit_tool")
    assert min(len(line.split()) for line in lines) > 4


def test_tools_lists_names_for_people(inside: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools", "-m", "some-model", "--wire", "chat"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"shell_command", "apply_patch", "update_plan"} <= {line.split()[0] for line in lines}


def test_apply_patch(place: Place) -> None:
    done = place.run("apply-patch", stdin=PATCH.encode())
    assert (done.code, done.out) == (0, "Success. Updated the following files:\nA new.txt\n")
    assert (place.cwd / "new.txt").read_text() == "hello\n"
    assert place.run("apply-patch", "a", "b").code == 2


def test_policy_check(inside: Place, capfd: pytest.CaptureFixture[str]) -> None:
    rules = inside.cwd / "team.rules"
    rules.write_text('prefix_rule(pattern = ["git", "push"], decision = "forbidden", justification = "no pushing")\n')
    assert main(["policy", "check", "--rules", str(rules), "--", "git", "push", "-f"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["requirement"] == "forbidden" and "no pushing" in report["reason"]
    assert main(["policy", "check", "-a", "untrusted", "--", "ls"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert set(report) == {"requirement", "reason", "bypass_sandbox", "matched", "proposed_execpolicy_amendment"}
    assert report["requirement"] == "skip"


def test_demo_solves_its_task_and_says_what_it_is(place: Place, tmp_path: Path) -> None:
    done = place.run("demo", "--keep", env={"TMPDIR": str(tmp_path)})
    assert done.code == 0, done.err
    assert "The model in this demo is scripted" in done.out and "-s workspace-write" in done.out
    assert "FAILED (failures=2)" in done.out and "  OK" in done.out and "The tests pass." in done.out
    kept = Path(done.out.strip().rpartition(" ")[2])
    assert kept.is_relative_to(tmp_path.resolve())
    tests = subprocess.run([sys.executable, "-B", "-m", "unittest"], cwd=kept, capture_output=True, check=False)
    assert tests.returncode == 0
    assert not place.home.exists()


def test_demo_works_without_git(place: Place, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "ls", "env"):
        (tools / name).symlink_to(shutil.which(name) or "")
    done = place.run("demo", env={"PATH": str(tools), "TMPDIR": str(tmp_path)})
    assert done.code == 0, done.out + done.err
    assert "scratch folder" in done.out and "The tests pass." in done.out
    assert not list(tmp_path.glob("ferrule-demo-*"))


def test_doctor_reports_and_never_shows_a_key(place: Place) -> None:
    with ScriptedModel() as model:
        (place.home).mkdir(parents=True)
        (place.home / "config.toml").write_text(
            'model_provider = "mine"\nmodel = "m-1"\n'
            f'[model_providers.mine]\nbase_url = "{model.base_url}"\nenv_key = "MINE_API_KEY"\n'
        )
        done = place.run("doctor", env={"MINE_API_KEY": "sk-secret", "OTHER_TOKEN": "tok-secret"})
    assert done.code == 0, done.err
    wanted = [
        f"ferrule        {__version__}", "platform", str(place.home), "git", "rg", "node", "/bin/sh",
        model.base_url, "MINE_API_KEY is set", "m-1", "lists 1 models: scripted-model", "MINE_API_KEY, OTHER_TOKEN",
        "Sandbox:", "extra mcp      installed",
    ]  # fmt: skip
    assert [text for text in wanted if text not in done.out] == []
    assert "secret" not in done.out


def test_doctor_goes_on_where_the_configuration_is_broken(place: Place) -> None:
    place.home.mkdir(parents=True)
    (place.home / "config.toml").write_text("model = ")
    done = place.run("doctor")
    assert done.code == 0
    assert "PROBLEM: " in done.out and "is not valid TOML" in done.out and "withheld" in done.out


def test_s09_doctor_runs_no_program_that_commands_can_write(place: Place) -> None:
    planted = place.cwd / ".venv/bin"
    planted.mkdir(parents=True)
    for name in ("git", "node", "rg"):
        (planted / name).write_text(f"#!/bin/sh\ntouch {place.cwd}/ran\n")
        (planted / name).chmod(0o755)
    done = place.run("doctor", env={"PATH": f"{planted}:/usr/local/bin:/usr/bin:/bin"})
    for name in ("git", "node", "rg"):
        assert f"{name:<14} PROBLEM: {planted}/{name} is not run, because commands can write there" in done.out
    assert f"({shutil.which('git', path='/usr/local/bin:/usr/bin:/bin')})" in done.out, "the next one is shown"
    assert not (place.cwd / "ran").exists()


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-"])
def test_streams_that_were_closed_lead_nowhere(cold_place: Place, closed: str) -> None:
    """No file that is opened gets their number, nor what is printed."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "-", *COMMAND, "apply-patch", PATCH],
        cwd=cold_place.cwd, env=cold_place.env(), capture_output=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert (cold_place.cwd / "new.txt").read_text() == "hello\n"
