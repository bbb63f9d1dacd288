"""Commands that outlive the call that started them, as programs and people see them."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule.doors.headless import running
from ferrule.protocol.events import ExecCommandBegin, ExecCommandEnd
from ferrule.testing import ScriptedModel, custom_tool_call, defects, function_call, http_error, step
from ferrule.testing.request import Request
from ferrule.testing.steps import StepLike, Usage
from tests.cli.command import FULL_ACCESS, Place, wait_until
from tests.cli.played import execute, play, send

WAIT = "until [ -e go ]; do sleep 0.02; done"
"""A script that waits for a file."""
LONG = f"echo a; {WAIT}; echo b; exit 4"
MODELS_OWN = re.compile("Chunk ID|Wall time|Original token count")
"""What only the model reads."""


def release(name: str = "go") -> dict[str, object]:
    """A command that lets those go on which wait for a file."""
    return execute(f"touch {name}", 10_000)


async def test_a_command_that_outlives_its_call_is_one_item(tmp_path: Path) -> None:
    done = await play(tmp_path, [execute(LONG), release(), send(), "Done."])
    commands = done.items("item.completed", "command_execution")
    assert [(item["exit_code"], item["status"]) for item in commands] in (
        [(0, "completed"), (4, "failed")],
        [(4, "failed"), (0, "completed")],
    )
    [long] = [item for item in commands if item["exit_code"]]
    assert long["command"].endswith(f" -lc '{LONG}'")
    assert long["aggregated_output"] == "a\nb\n"
    assert len(done.items("item.started", "command_execution")) == 2
    assert done.items("item.completed", "tool_call") == [], "a wait is no item"
    assert not MODELS_OWN.search(done.text)
    assert done.lines[-1]["type"] == "turn.completed"


async def test_people_see_a_long_command_end_once_without_the_models_lines(tmp_path: Path) -> None:
    done = await play(tmp_path, [execute(LONG), release(), send(), "Done."], people=True)
    assert done.text.count("✗ exit 4") == 1
    assert "… still running" in done.text
    assert done.text.index("a\n  b\n") < done.text.index("✗ exit 4")
    assert not MODELS_OWN.search(done.text)


async def test_several_sessions_end_in_any_order(tmp_path: Path) -> None:
    waiting = [execute(f"until [ -e {name} ]; do sleep 0.02; done; echo {name}; exit {code}")
               for code, name in enumerate(("zero", "one", "two"))]  # fmt: skip
    ends = [execute(f"touch {name}; {WAIT}", 10_000) for name in ("two", "zero", "one")]
    done = await play(tmp_path, [step(*waiting), step(*ends, release()), "Done."])
    ended = {item["aggregated_output"]: item["exit_code"] for item in done.items("item.completed", "command_execution")}
    assert ended == {"zero\n": 0, "one\n": 1, "two\n": 2, "": 0}
    started = [item["id"] for item in done.items("item.started", "command_execution")]
    completed = [item["id"] for item in done.items("item.completed", "command_execution")]
    assert sorted(started) == sorted(completed) and len(set(started)) == 7


@pytest.mark.parametrize(
    ("script", "input_", "code"),
    [("sleep 60", "\x03", 130), ("kill -9 $$", "", 137), ("read x; echo got $x", "yes\n", 0)],
    ids=["killed by the model", "ended by a signal", "answered"],
)
async def test_a_session_ends_with_the_code_of_its_process(tmp_path: Path, script: str, input_: str, code: int) -> None:
    started = execute(f"{WAIT}; {script}", tty=script.startswith("read"))
    (tmp_path / "go").touch()
    done = await play(tmp_path, [started, *([send(input_)] if input_ else []), "Done."])
    command = done.command()
    assert (command["exit_code"], command["status"]) == (code, "failed" if code else "completed")
    typed = done.items("item.completed", "tool_call")
    assert [(item["arguments"]["chars"], item["output"], item["status"]) for item in typed] == (
        [(input_, None, "completed")] if input_ else []
    )


async def test_a_session_that_is_gone_is_a_failed_call(tmp_path: Path) -> None:
    gone = function_call("write_stdin", {"session_id": 7})
    done = await play(tmp_path, [gone, "Done."])
    [item] = done.items("item.completed", "tool_call")
    assert item["status"] == "failed" and "Unknown process id 7" in item["output"]


async def test_what_still_runs_at_the_end_is_waited_for(tmp_path: Path) -> None:
    done = await play(tmp_path, [execute("echo a; sleep 1; echo b; exit 4"), "Done."])
    command = done.command()
    assert (command["aggregated_output"], command["exit_code"]) == ("a\nb\n", 4)
    assert [line["type"] for line in done.lines[-2:]] == ["item.completed", "turn.completed"]


async def test_what_runs_too_long_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "COMMAND_GRACE", 0.2)
    done = await play(tmp_path, [step(execute("echo a; sleep 61"), execute("sleep 62")), "Done."])
    ends = done.items("item.completed", "command_execution")
    assert [(item["exit_code"], item["status"]) for item in ends] == [(143, "failed")] * 2
    assert {item["aggregated_output"] for item in ends} == {"a\n", ""}
    assert [line["type"] for line in done.lines[-3:]] == ["item.completed", "item.completed", "turn.completed"]
    told = capsys.readouterr().err
    assert told.startswith("ferrule: ") and "sleep 61" in told and "sleep 62" in told


async def test_a_turn_that_fails_completes_its_commands_first(tmp_path: Path) -> None:
    done = await play(tmp_path, [step(execute("echo a; sleep 60"), execute("sleep 61")), http_error(400, "no more")])
    assert "no more" in done.error
    assert [item["exit_code"] for item in done.items("item.completed", "command_execution")] == [143, 143]
    assert [line["type"] for line in done.lines[-2:]] == ["error", "turn.failed"]
    assert done.lines[-2]["message"] == done.error


@pytest.mark.parametrize("bound", ["run_timeout", "turn_timeout"])
async def test_a_bound_that_ends_a_run_is_named_after_its_commands(tmp_path: Path, bound: str) -> None:
    done = await play(tmp_path, [execute("sleep 60"), execute("sleep 61", 30_000)], **{bound: 2.0})  # type: ignore[arg-type]
    assert bound in done.error and done.lines[-1]["error"]["message"] == done.error
    ends = done.items("item.completed", "command_execution")
    assert len(ends) == len(done.items("item.started", "command_execution"))
    assert all(isinstance(item["exit_code"], int) and item["status"] == "failed" for item in ends)


def test_an_interrupt_completes_commands_of_earlier_calls(place: Place) -> None:
    with ScriptedModel([execute("echo a; sleep 60"), execute("touch here; sleep 61", 30_000)]) as model:
        child = place.start(
            "exec", "--base-url", model.base_url, "--wire", "responses", "-m", "gpt-5.5", "--json", *FULL_ACCESS, "go"
        )
        wait_until((place.cwd / "here").exists, 40)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    lines = [json.loads(line) for line in out.splitlines()]
    items = [line["item"] for line in lines if line["type"] == "item.completed"]
    assert len(items) == 2 and all(isinstance(item["exit_code"], int) for item in items)
    assert {item["aggregated_output"] for item in items} == {"a\n", ""}
    assert [line["type"] for line in lines[-2:]] == ["error", "turn.failed"]


async def test_output_is_bounded_and_need_not_be_text(tmp_path: Path) -> None:
    call = execute("printf 'a\\377\\0\\033[1m\\r\\n'; head -c 3000000 /dev/zero | tr '\\0' x; echo end", 20_000)
    done = await play(tmp_path, [call, "Done."])
    output = done.command()["aggregated_output"]
    assert output.startswith("a\ufffd\0\x1b[1m\r\nxxx") and output.endswith("xend\n")
    assert "bytes omitted" in output and len(output) < 1_100_000


async def test_a_kept_shells_command_ends_when_its_process_does(tmp_path: Path) -> None:
    def bash(command: str, **more: object) -> dict[str, object]:
        return dict(function_call("execute_bash", {"command": command, **more}))

    def go(request: Request) -> dict[str, object]:
        (tmp_path / "go").touch()
        return bash("", is_input=True, timeout=20)

    calls: list[StepLike] = [
        bash(f"echo a; {WAIT}; read x; echo got $x; (exit 3)", timeout=0.3),
        bash("", is_input=True, timeout=0.3),
        bash("hello", is_input=True, timeout=0.3),
        go,
        bash("", reset=True),
        bash("echo a; sleep 1; (exit 5)", timeout=0.3),
        "Done.",
    ]
    done = await play(tmp_path, calls, tools=("execute_bash",))
    first, second = done.items("item.completed", "command_execution")
    assert (first["aggregated_output"], first["exit_code"]) == ("a\ngot hello\n", 3)
    assert (second["aggregated_output"], second["exit_code"]) == ("a\n", 5), "nobody waited for it"
    assert len(done.items("item.started", "command_execution")) == 2
    typed, reset = done.items("item.completed", "tool_call")
    assert typed["arguments"]["command"] == "hello" and reset["arguments"]["reset"]


async def test_a_session_of_a_program_goes_on_from_turn_to_turn(tmp_path: Path) -> None:
    script: list[StepLike] = [execute(f"{WAIT}; echo late; exit 4"), "One.", "Two.", "Three."]
    with ScriptedModel(script) as model:
        agent = Agent("gpt-5.5", base_url=model.base_url, wire="responses", cwd=tmp_path, sandbox="danger-full-access")
        async with agent, await agent.open() as session:
            first = [event async for event in session.stream("one")]
            second = [event async for event in session.stream("two")]
            (tmp_path / "go").touch()
            [command] = session.toolset.conversation.commands.ongoing
            await command.over()
            third = [event async for event in session.stream("three")]
    begins, ends = ([[type(e) for e in turn].count(kind) for turn in (first, second, third)]
                    for kind in (ExecCommandBegin, ExecCommandEnd))  # fmt: skip
    assert (begins, ends) == ([1, 0, 0], [0, 0, 1])
    [end] = [event for event in third if isinstance(event, ExecCommandEnd)]
    assert (end.exit_code, end.output) == (4, "late\n")


@pytest.mark.parametrize("form", ["custom", "shell"])
async def test_changed_files_have_absolute_paths(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "old.txt").write_text("old\n")
    patch = "\n".join(
        [
            "*** Begin Patch",
            "*** Update File: old.txt",
            "*** Move to: ../new.txt",
            "@@",
            "-old",
            "+new",
            "*** End Patch",
            "",
        ]
    )
    if form == "custom":
        call = dict(custom_tool_call("apply_patch", patch.replace("old.txt", "sub/old.txt", 1).replace("../", "")))
    else:
        call = execute(f"apply_patch <<'EOF'\n{patch}EOF\n", workdir="sub")
    done = await play(tmp_path, [call, call, "Done."])
    change = {"path": f"{folder}/old.txt", "kind": "update", "move_path": f"{tmp_path}/new.txt"}
    first, second = done.items("item.completed", "file_change")
    assert (first["changes"], first["status"]) == ([change], "completed")
    assert (second["changes"][0]["path"], second["status"]) == (f"{folder}/old.txt", "failed")
    assert "verification failed" in second["error"]["message"]
    assert [item["changes"] for item in done.items("item.started", "file_change")] == [[change], second["changes"]]


async def test_usage_has_all_its_fields(tmp_path: Path) -> None:
    def written(event: dict[str, Any]) -> dict[str, Any]:
        event["response"]["usage"]["input_tokens_details"]["cache_write_tokens"] = 30
        return event

    counted = step("Done.", usage=Usage(100, 20, 50, 5), edits=defects.change("response.completed", written))
    done = await play(tmp_path, [counted])
    assert done.lines[-1]["usage"] == {
        "input_tokens": 100, "cached_input_tokens": 50, "cache_write_input_tokens": 30, "output_tokens": 20,
        "reasoning_output_tokens": 5,
    }  # fmt: skip
