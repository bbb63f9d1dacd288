"""`ferrule exec` against a scripted server: what programs read, what people read, what stays on disk."""

import base64
import json
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ferrule.testing import ScriptedModel, function_call, http_error, raw, reasoning, step
from ferrule.testing.steps import StepLike, Usage
from tests.cli.command import COMMAND, FULL_ACCESS, Done, Place, kinds, wait_until

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** Update File: old.txt\n@@\n-old\n+newer\n*** End Patch\n"


def shell(command: str) -> dict[str, object]:
    return function_call("shell_command", {"command": command})


def plan(*states: str) -> dict[str, object]:
    return function_call("update_plan", {"plan": [{"step": f"step {i}", "status": s} for i, s in enumerate(states)]})


def whole_story() -> list[StepLike]:
    return [
        step(reasoning("Look first."), "I look.", shell("cat old.txt; exit 3")),
        step(function_call("apply_patch", {"input": PATCH}), plan("in_progress", "pending")),
        step(plan("completed", "completed"), function_call("nope", {"x": 1}), function_call("shell_command", "{")),
        step("All done.", usage=Usage(100, 20, 50, 5)),
    ]


def exec_against(place: Place, model: ScriptedModel, *arguments: str, **more: Any) -> Done:
    return place.run("exec", "--base-url", model.base_url, "-m", "scripted-model", *arguments, **more)


def test_all_wires_give_the_same_items_and_the_tools_that_are_listed(place: Place) -> None:
    told: list[list[dict[str, Any]]] = []
    for wire in ("responses", "chat", "messages"):
        (place.cwd / "old.txt").write_text("old\n")
        with ScriptedModel(whole_story()) as model:
            done = exec_against(place, model, "--wire", wire, "--json", *FULL_ACCESS, "go")
            model.check()
            flags = ("--base-url", model.base_url, "-m", "scripted-model", "--wire", wire, *FULL_ACCESS)
            listed = place.run("tools", *flags, "--json")
            assert len(model.requests) == 4, "`tools` opens no connection"
            body = model.requests[0].raw
        assert (done.code, done.err) == (0, "")
        assert body.count(listed.out.rstrip("\n").encode()) == 1, "byte for byte"
        assert (place.cwd / "new.txt").read_text() == "hello\n"
        (place.cwd / "new.txt").unlink()
        told.append([line for line in done.lines if line["type"].startswith("item.")])
        first, second, *_, last = done.lines
        assert first["type"] == "thread.started" and len(first["thread_id"]) == 36
        assert second == {"type": "turn.started"}
        assert last["type"] == "turn.completed" and last["usage"]["output_tokens"] > 20
    assert told[0] == told[1] == told[2]
    items = {line["item"]["id"]: line["item"] for line in told[0]}
    assert list(items) == [f"item_{n}" for n in range(len(items))]
    assert [(item["type"], item.get("status")) for item in items.values()] == [
        ("reasoning", None),
        ("agent_message", None),
        ("command_execution", "failed"),
        ("file_change", "completed"),
        ("todo_list", None),
        ("tool_call", "failed"),
        ("tool_call", "failed"),
        ("agent_message", None),
    ]
    command, change, todo, unknown, invalid = list(items.values())[2:7]
    assert command["command"] == "/bin/sh -lc 'cat old.txt; exit 3'"
    assert (command["aggregated_output"], command["exit_code"]) == ("old\n", 3)
    assert change["changes"] == [
        {"path": f"{place.cwd}/new.txt", "kind": "add"}, {"path": f"{place.cwd}/old.txt", "kind": "update"},
    ]  # fmt: skip
    assert todo["items"] == [{"text": "step 0", "completed": True}, {"text": "step 1", "completed": True}]
    assert unknown["tool"] == "nope" and unknown["arguments"] == {"x": 1} and "unsupported call" in unknown["output"]
    assert invalid["arguments"] == "{" and "failed to parse function arguments" in invalid["output"]


def test_every_call_that_completes_has_started_under_the_same_id(place: Place) -> None:
    (place.cwd / "old.txt").write_text("old\n")
    bad_plan = function_call("update_plan", {"plan": "all"})
    with ScriptedModel([step(bad_plan, shell("true")), "Done."]) as model:
        done = exec_against(place, model, "--json", "go")
    started = [(item["id"], item["type"]) for item in done.items("item.started")]
    completed = [(item["id"], item["type"]) for item in done.items() if item["type"] != "agent_message"]
    assert sorted(started) == sorted(completed)
    assert {kind for _, kind in started} == {"tool_call", "command_execution"}


def test_people_read_the_story_and_programs_only_the_last_message(place: Place) -> None:
    (place.cwd / "old.txt").write_text("old\n")
    with ScriptedModel(whole_story()) as model:
        done = exec_against(place, model, *FULL_ACCESS, "-o", "last.txt", "go")
    assert done.code == 0
    assert done.out == "All done.\n"
    assert (place.cwd / "last.txt").read_text() == "All done."
    wanted = [
        "scripted-model", "danger-full-access", "Look first.", "I look.", "$ cat old.txt; exit 3", "  old",
        "✗ exit 3", "Edit new.txt, old.txt", "✓ added new.txt (+1 -0)", "    -old", "    +newer", "✓ step 0",
        "nope(x=1)", "Invalid tool call", "All done.", "tokens in", "ferrule exec resume",
    ]  # fmt: skip
    assert [text for text in wanted if text not in done.err] == []
    assert "\x1b" not in done.err, "no colours where nobody sees them"
    assert "bash" not in done.err


def test_where_both_outputs_are_one_file_the_last_message_is_written_once(place: Place) -> None:
    both = place.cwd / "both.txt"
    with ScriptedModel(["The only words."]) as model, both.open("wb") as file:
        command = [*COMMAND, "exec", "--base-url", model.base_url, "-m", "m", "go"]
        subprocess.run(command, cwd=place.cwd, env=place.env(), stdout=file, stderr=file, check=True)
    assert both.read_text().count("The only words.") == 1


def test_what_comes_from_elsewhere_cannot_move_the_cursor(place: Place) -> None:
    with ScriptedModel([step("a\x1b[2Jb", shell("printf 'x\\033[1Ay\\033]0;t\\007z'")), "Done."]) as model:
        done = exec_against(place, model, *FULL_ACCESS, "go")
    assert "\x1b" not in done.err
    assert "a\\x1b[2Jb" in done.err


def test_a_refused_command_is_declined(place: Place) -> None:
    forced = shell("rm -rf /nonexistent-of-ferrule")
    with ScriptedModel([forced, "Done."]) as model:
        done = exec_against(place, model, "--json", "-s", "read-only", "go")
    (item,) = [item for item in done.items() if item["type"] == "command_execution"]
    assert item["status"] == "declined" and item["exit_code"] is None and item["aggregated_output"]


def test_prompt_from_standard_input_with_image_schema_and_settings(place: Place) -> None:
    pixel = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
    )
    (place.cwd / "p.png").write_bytes(pixel)
    (place.cwd / "s.json").write_text('{"type": "object", "properties": {}, "additionalProperties": false}')
    with ScriptedModel(["{}"]) as model:
        done = exec_against(
            place, model, "--wire", "responses", "-i", "p.png", "--output-schema", "s.json",
            "-c", "model_verbosity=low", "-", stdin="Grüße".encode(),
        )  # fmt: skip
        request = model.last_request
    assert (done.code, done.out) == (0, "{}\n")
    user = [item for item in request.items if item.get("role") == "user"][-1]
    parts = json.dumps(user["content"], ensure_ascii=False)
    assert "Grüße" in parts and "data:image/png;base64," in parts
    assert json.dumps(request.body).count('"additionalProperties": false') >= 1
    assert "json_schema" in json.dumps(request.body)


@pytest.mark.parametrize("words", [["--", "--yolo is a flag"], ["--json", "--", "-p"]])
def test_a_prompt_behind_two_dashes_may_begin_with_one(place: Place, words: list[str]) -> None:
    with ScriptedModel(["Done."]) as model:
        assert exec_against(place, model, *words).code == 0
        assert f'\\n{words[-1]}"' in model.requests[0].raw.decode()


def test_max_turns_ends_the_turn_with_code_1(place: Place) -> None:
    with ScriptedModel([shell("true"), shell("true")]) as model:
        done = exec_against(place, model, "--json", "--max-turns", "1", *FULL_ACCESS, "go")
    assert done.code == 1
    assert [line["type"] for line in done.lines][-2:] == ["error", "turn.failed"]
    assert "--max-turns" in done.err


@pytest.mark.parametrize(("flag", "key"), [("--timeout", "run_timeout"), ("--turn-timeout", "turn_timeout")])
def test_a_run_that_takes_too_long_ends_with_code_1(place: Place, flag: str, key: str) -> None:
    with ScriptedModel([shell("sleep 60")]) as model:
        done = exec_against(place, model, "--json", flag, "1.5", *FULL_ACCESS, "go")
    assert done.code == 1
    assert [line["type"] for line in done.lines][-2:] == ["error", "turn.failed"]
    assert f"stopped after 1.5 s ({key})" in done.err


def test_a_limit_of_output_tokens_is_sent(place: Place) -> None:
    with ScriptedModel(["Hi.", "Hi."]) as model:
        exec_against(place, model, "--wire", "chat", "go")
        exec_against(place, model, "--wire", "responses", "--max-output-tokens", "500", "go")
        first, second = (request.body for request in model.requests)
    assert first["max_tokens"] >= 4096  # type: ignore[operator]
    assert second["max_output_tokens"] == 500


def test_a_call_limit_leaves_one_answer_without_tools(place: Place) -> None:
    with ScriptedModel([shell("true"), "That is all."]) as model:
        done = exec_against(place, model, "--max-tool-calls", "1", *FULL_ACCESS, "go")
        assert model.last_request.body["tool_choice"] == "none"
    assert (done.code, done.out) == (0, "That is all.\n")


def test_a_budget_that_is_used_up_ends_the_run_with_code_1(place: Place) -> None:
    calls = [step(shell("true"), usage=Usage(1_000_000, 100_000)) for _ in range(3)]
    prices = ("-c", 'prices."*"={input=2, output=10}', *FULL_ACCESS, "go")
    with ScriptedModel(calls) as model:
        done = exec_against(place, model, "--json", "--cost-budget", "5.5", *prices)
        assert len(model.requests) == 2
    assert done.code == 1
    assert [line["type"] for line in done.lines][-2:] == ["error", "turn.failed"]
    assert "cost 6 of 5.5 of this run (run_cost_budget)" in done.err
    counts = [(line["cost"], line["budget"]) for line in done.lines if line["type"] == "token_count"]
    assert counts == [(3.0, "cost 3 of 5.5 of this run"), (6.0, "cost 6 of 5.5 of this run")]
    with ScriptedModel([calls[0], step("Done.", usage=Usage(1_000_000, 0))]) as model:
        done = exec_against(place, model, "--token-budget", "3000000", *prices)
    assert (done.code, done.out) == (0, "Done.\n")
    assert "1,100,000 of 3,000,000 tokens of this run used" in done.err
    assert "2,000,000 tokens in, 100,000 out, cost 5 · go on" in done.err


def test_an_answer_that_repeats_itself_ends_with_code_1(place: Place) -> None:
    with ScriptedModel(["again and " * 5_000]) as model:
        done = exec_against(place, model, "--json", "go")
    assert done.code == 1 and "repeat" in done.err
    assert [line["type"] for line in done.lines][-2:] == ["error", "turn.failed"]


def test_a_resumed_session_needs_no_flags_and_reads_its_key_again(place: Place) -> None:
    with ScriptedModel(["First.", "Second."]) as model:
        flags = ("--base-url", model.base_url, "--wire", "responses", "-m", "m-1", "--api-key-env", "OWN_KEY")
        first = place.run("exec", *flags, "-c", 'tools=["think"]', "one", env={"OWN_KEY": "sk-one"})
        second = place.run("exec", "resume", "--last", "two", env={"OWN_KEY": "sk-two"})
        before, after = model.requests
    assert (first.code, second.code) == (0, 0), second.err
    assert (before.headers["authorization"], after.headers["authorization"]) == ("Bearer sk-one", "Bearer sk-two")
    assert after.body["model"] == "m-1" and after.body["tools"] == before.body["tools"]
    [rollout] = place.home.rglob("rollout-*.jsonl")
    assert "sk-one" not in rollout.read_text()


def test_a_session_file_from_elsewhere_chooses_no_server(place: Place, tmp_path: Path) -> None:
    with ScriptedModel(["First."]) as theirs, ScriptedModel(["Second."]) as ours:
        exec_against(place, theirs, "--wire", "responses", "one")
        [rollout] = place.home.rglob("rollout-*.jsonl")
        outside = tmp_path / rollout.name
        rollout.rename(outside)
        rollout.symlink_to(outside)
        place.home.joinpath("config.toml").write_text(
            f'model_provider = "mine"\n[model_providers.mine]\nbase_url = "{ours.base_url}"\nwire_api = "responses"\n'
        )
        done = place.run("exec", "resume", "--last", "two")
        asked = [[request for request in model.requests if request.step is not None] for model in (theirs, ours)]
    assert [len(requests) for requests in asked] == [1, 1]
    assert done.code == 0, done.err


FAULTS = {
    "refused key": (http_error(401, "bad key"), "wants a key, and none was sent"),
    "malformed reply": (raw(b"<html>hello</html>", content_type="text/html"), "not its API"),
    "broken stream": (raw(b"data: {\n\n"), ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_turn_is_one_sentence_and_a_complete_rollout(place: Place, fault: str) -> None:
    answer, words = FAULTS[fault]
    with ScriptedModel([step("Looking.", shell("echo seen")), *[answer] * 8]) as model:
        place.home.mkdir(parents=True)
        (place.home / "config.toml").write_text(
            'model_provider = "mine"\n'
            f'[model_providers.mine]\nbase_url = "{model.base_url}"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
        )
        done = place.run("exec", "-m", "m", "--json", *FULL_ACCESS, "-o", "last.txt", "go")
    assert done.code == 1
    error, failed = done.lines[-2:]
    assert error["type"] == "error" and failed == {"type": "turn.failed", "error": {"message": error["message"]}}
    assert words in error["message"]
    assert done.err.count("\n") == 1 and done.err.startswith("ferrule: ")
    assert not (place.cwd / "last.txt").exists(), "nothing half-written"
    rollout = place.rollout()
    assert kinds(rollout)[-6:] == [
        "message",
        "function_call",
        "function_call_output",
        "token_count",
        "token_count",
        "error",
    ]
    assert "seen" in rollout[-4]["payload"]["output"]
    (path,) = place.home.glob("sessions/*/*/*/*")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_unreachable_server_is_one_sentence(place: Place) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        done = place.run("exec", "--base-url", url, "--json", "go")
    assert done.code == 1
    assert [line["type"] for line in done.lines] == ["error", "turn.failed"]
    assert done.err.startswith("ferrule: Cannot connect to server at") and done.err.count("\n") == 1
    assert not place.home.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_children_and_is_on_disk(place: Place, number: signal.Signals) -> None:
    with ScriptedModel([step(shell("echo quick"), shell("echo $$ > pid; sleep 300 & wait"))]) as model:
        child = place.start("exec", "--base-url", model.base_url, "-m", "m", "--json", *FULL_ACCESS, "go")
        pid_file = place.cwd / "pid"
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
        wait_until(lambda: "quick" in json.dumps(place.rollout()[-1]))
        pid = int(pid_file.read_text())
        child.send_signal(number)
        out, err = child.communicate(timeout=20)
    assert child.returncode == 130, err
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-2:] == [
        {"type": "error", "message": "interrupted"},
        {"type": "turn.failed", "error": {"message": "interrupted"}},
    ]
    rollout = place.rollout()
    assert kinds(rollout)[-4:] == ["function_call_output", "function_call_output", "token_count", "turn_aborted"]
    assert "aborted by user" in rollout[-3]["payload"]["output"]


def test_b155_resume_restores_directory_and_rights(place: Place, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ScriptedModel(["One.", "Two.", "Three."]) as model:
        first = exec_against(place, model, "--json", "-s", "read-only", "first")
        thread = first.lines[0]["thread_id"]
        arguments = ("exec", "--base-url", model.base_url, "resume")
        second = place.run(*arguments, "--last", "--all", "second", cwd=elsewhere)
        third = place.run(*arguments, thread, "third", *FULL_ACCESS, "-C", str(elsewhere), cwd=tmp_path)
        asked = [request.user_text for request in model.requests if request.step is not None]
    assert (first.code, second.code, third.code) == (0, 0, 0), second.err + third.err
    contexts = [line["payload"] for line in place.rollout() if line["type"] == "turn_context"]
    assert [context["cwd"] for context in contexts] == [str(place.cwd), str(place.cwd), str(elsewhere.resolve())]
    modes = [context["sandbox_policy"]["type"] for context in contexts]
    assert modes == ["read-only", "read-only", "danger-full-access"]
    assert "first" in asked[-1] and "second" in asked[-1] and "third" in asked[-1]


def test_b155_resume_in_a_missing_directory_stops(place: Place, tmp_path: Path) -> None:
    with ScriptedModel(["One."]) as model:
        exec_against(place, model, "first")
        place.cwd.rmdir()
        done = place.run("exec", "--base-url", model.base_url, "resume", "--last", "--all", "second", cwd=tmp_path)
        assert len(model.requests) == 1
    assert done.code == 2
    assert str(place.cwd) in done.err and "-C" in done.err and done.err.count("\n") == 1
    assert kinds(place.rollout())[-1] == "token_count"


def test_a_broken_pipe_is_quiet(place: Place) -> None:
    with ScriptedModel([shell("true"), "Done."]) as model:
        child = place.start("exec", "--base-url", model.base_url, "-m", "m", "--json", *FULL_ACCESS, "go")
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        err = child.stderr.read()
        child.stderr.close()
        assert child.wait(20) == 1
    assert err == b""


def test_n004_what_git_would_run_is_told_to_the_model_and_by_every_door(place: Place) -> None:
    line = "git init -q own && git -C own config core.hooksPath .husky"
    told = f"{place.cwd}/own/.git/config: core.hookspath = .husky"
    with ScriptedModel([step(shell(line)), "Done."]) as model:
        done = exec_against(place, model, "--json", "-s", "workspace-write", "go")
        output = model.requests[1].raw.decode()
    errors = [line["item"]["message"] for line in done.lines if line.get("item", {}).get("type") == "error"]
    assert len(errors) == 1 and told in errors[0]
    assert "core.hookspath = .husky" in output
    assert done.lines[-1]["type"] == "turn.completed"
    assert done.err.startswith("ferrule: Before you use git") and told in done.err
    again = place.run("sandbox", "--", "sh", "-c", "cp -r own other")
    assert (again.code, again.out) == (0, "")
    first, last = again.err.splitlines()
    assert first.startswith("ferrule: A repository that commands made") and f"{place.cwd}/other/.git" in first
    assert last.startswith("ferrule: Before you use git") and told in last
