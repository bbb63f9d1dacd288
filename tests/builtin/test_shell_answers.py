"""What the model reads of `shell`, `shell_command` and the native items, and what the front end is told."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule.protocol.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta
from ferrule.protocol.items import FunctionCall, LocalShellCallOutput, ShellCallOutput, read_item
from ferrule.protocol.payload import LocalShellPayload, ShellToolCallParams
from ferrule.protocol.permissions import SandboxPermissions
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.context import NoOtherTools, ToolInvocation
from ferrule.tools.registry import NATIVE
from tests.builtin.conftest import Benches
from tests.builtin.workbench import Bench, body, field
from tests.processes import alive, eventually


def structured(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


async def native(bench: Bench, **action: object) -> ShellCallOutput:
    item = {"type": "shell_call", "call_id": "call_n", "action": action}
    answer = (await bench.answer(read_item(msgspec.json.encode(item)).view)).view
    assert isinstance(answer, ShellCallOutput)
    return answer


async def local(bench: Bench, call_id: str | None = "call_l", **action: object) -> LocalShellCallOutput:
    item = {"type": "local_shell_call", "id": "lsh_1", "call_id": call_id, "action": {"type": "exec", **action}}
    answer = (await bench.answer(read_item(msgspec.json.encode(item)).view)).view
    assert isinstance(answer, LocalShellCallOutput)
    return answer


async def test_shell_command_answers_in_lines(bench: Bench) -> None:
    output = await bench.output("shell_command", command="echo out; echo err >&2; exit 3")
    assert re.fullmatch(r"Exit code: 3\nWall time: \d+(\.\d)? seconds\nOutput:\nout\nerr\n", output.text)
    assert (output.success, output.bounded) == (False, True)
    assert body(await bench.call("shell_command", command="true")) == ""


async def test_shell_answers_in_json(bench: Bench) -> None:
    output = await bench.output("shell", command=["printf", "%s", "a b"])
    assert re.fullmatch(r'\{"output":"a b","metadata":\{"exit_code":0,"duration_seconds":\d+\.\d\}\}', output.text)
    assert output.success is True
    assert structured(await bench.call("container.exec", command=["false"]))["metadata"]["exit_code"] == 1


async def test_local_shell_answers_with_its_own_item(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    answer = await local(bench, command=["sh", "-c", "echo $X; pwd"], env={"X": "1"}, working_directory="sub")
    assert answer.call_id == "call_l"
    assert structured(answer.output)["output"] == f"1\n{tmp_path}/sub\n"
    assert bench.host.effects[-1].env == (("X", "1"),)  # type: ignore[union-attr]
    answer = await local(bench, call_id=None, command="echo $((1+1)); sleep 60", timeout_ms=300)
    assert answer.call_id == "lsh_1"
    assert structured(answer.output)["output"] == "command timed out after 300 milliseconds\n2\n"


async def test_every_parameter_of_a_local_shell_call_is_read(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    handler = bench.dispatcher.registry.handler("local_shell", NATIVE)
    assert handler is not None

    async def run(**more: Any) -> str:
        params = ShellToolCallParams(("sh", "-c", "pwd; sleep 60"), timeout_ms=300, **more)
        invocation = ToolInvocation("c", "local_shell", LocalShellPayload(params), NATIVE)
        return (await handler.handle(invocation, bench._context(invocation, NoOtherTools()))).text

    said = await run(workdir="sub", with_escalated_permissions=True, justification="why")
    assert structured(said)["output"] == f"command timed out after 300 milliseconds\n{tmp_path}/sub\n"
    effect: Any = bench.host.effects[-1]
    assert (effect.sandbox_permissions, effect.justification) == (SandboxPermissions.REQUIRE_ESCALATED, "why")


async def test_native_shell_answers_each_command(bench: Bench) -> None:
    answer = await native(bench, commands=["echo a; echo b >&2", "exit 3", "echo c; sleep 60"], timeout_ms=400)
    assert list(msgspec.to_builtins(answer.output)) == [
        {"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}},
        {"stdout": "c\n", "stderr": "command timed out after 400 milliseconds\n", "outcome": {"type": "timeout"}},
    ]
    assert (answer.call_id, answer.max_output_length) == ("call_n", None)


async def test_native_shell_keeps_the_length_that_was_asked_for(bench: Bench) -> None:
    answer = await native(bench, commands=["seq 1 5000; echo error >&2"], max_output_length=100)
    (one,) = answer.output
    assert answer.max_output_length == 100
    assert one.stderr == "error\n"
    kept = re.sub(r"…\d+ chars truncated…", "", one.stdout)
    assert len(kept) + len(one.stderr) == 100
    assert kept.startswith("1\n2\n") and kept.endswith("5000\n")


async def test_native_shell_shares_the_sessions_budget(benches: Benches) -> None:
    bench = benches("native_shell", budget=OutputBudget(100))
    answer = await native(bench, commands=["seq 1 5000"] * 4)
    assert all("truncated…" in one.stdout and len(one.stdout) < 140 for one in answer.output)


async def test_native_shell_stops_where_one_cannot_run(bench: Bench, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    bench.state = msgspec.structs.replace(bench.state, cwd=str(gone))
    gone.rmdir()
    first, second = (await native(bench, commands=["echo a", "echo b"])).output
    assert str(gone) in first.stderr and "not run" in second.stderr


async def test_seq_is_cut_once_in_its_middle(bench: Bench) -> None:
    text = await bench.call("shell_command", command="seq 1 100000")
    assert "Total output lines: 100000" in text and text.count("truncated…") == 1
    assert "…137224 tokens truncated…" in text
    shown = body(text)
    assert shown.startswith("1\n2\n") and shown.endswith("99999\n100000\n")
    assert len(shown) == 40_000 + len("…137224 tokens truncated…")
    output = structured(await bench.call("shell", command=["seq", "1", "100000"]))["output"]
    assert output.startswith(
        "Warning: truncated output (original token count: 147224)\nTotal output lines: 100000\n\n1\n"
    )


async def test_the_marker_counts_what_was_not_even_kept(bench: Bench) -> None:
    text = await bench.call("shell_command", command="head -c 3000000 /dev/zero | tr '\\0' x")
    counted = re.findall(r"…(\d+) tokens truncated…", text)
    assert len(counted) == 1 and abs(int(counted[0]) - (3_000_000 - 40_000) // 4) < 20
    assert "Total output lines" not in text


async def test_cut_on_a_character(benches: Benches) -> None:
    bench = benches("shell_command", budget=OutputBudget(101, "bytes"))
    text = body(await bench.call("shell_command", command="for i in $(seq 100); do printf é; done"))
    assert set(re.sub(r"…\d+ chars truncated…", "", text)) == {"é"}


async def test_progress_and_colours_are_what_a_person_sees(bench: Bench) -> None:
    script = r"printf '10%%\r20%%\r100%%\n\033[31mred\033[0m\n\033]0;title\007end\n'"
    assert body(await bench.call("shell_command", command=script)) == "100%\nred\nend\n"


async def test_bytes_that_are_no_text_are_shown_and_told(bench: Bench) -> None:
    text = body(await bench.call("shell_command", command=r"printf 'a\0b\377\n'"))
    shown, note = text.splitlines()
    assert shown == "a\ufffdb\ufffd"
    assert note.startswith("2 bytes of the output are no text")
    assert body(await bench.call("shell_command", command=r"printf '\357\277\275\n'")) == "\ufffd\n"


async def test_a_timeout_keeps_the_output_so_far(bench: Bench) -> None:
    output = await bench.output("shell_command", command="echo early; sleep 60", timeout_ms=300.0)
    assert field(output.text, "Exit code:") == "124"
    assert body(output.text) == "command timed out after 300 milliseconds\nearly\n"
    assert output.success is False


@pytest.mark.parametrize("spelling", ["timeout_ms", "timeout"])
async def test_each_shell_has_a_timeout(bench: Bench, spelling: str) -> None:
    for name in ("shell", "shell_command", "exec_command"):
        command = ["sleep", "60"] if name == "shell" else "sleep 60"
        assert "command timed out after 50 milliseconds" in await bench.call(name, command=command, **{spelling: 50})


async def test_death_by_signal(bench: Bench) -> None:
    assert field(await bench.call("shell_command", command="kill -9 $$"), "Exit code:") == "137"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("shell", {"command": ["pwd"]}), ("shell_command", {"command": "pwd"}), ("exec_command", {"cmd": "pwd"})],
)
async def test_a_command_runs_where_and_with_the_rights_that_are_asked_for(
    bench: Bench, tmp_path: Path, name: str, arguments: dict[str, object]
) -> None:
    (tmp_path / "sub").mkdir()
    reason, rule = "it needs the network", ["npm", "install"]
    asked = {"sandbox_permissions": "require_escalated", "justification": reason, "prefix_rule": rule}
    assert f"{tmp_path}/sub" in await bench.call(name, **arguments, workdir="sub", **asked)
    effect: Any = bench.host.effects[-1]
    assert (effect.cwd, effect.tty) == (str(tmp_path / "sub"), False)
    assert effect.sandbox_permissions is SandboxPermissions.REQUIRE_ESCALATED
    assert (effect.justification, effect.prefix_rule) == (reason, tuple(rule))


async def test_effects_say_exactly_what_runs(bench: Bench) -> None:
    async def ran(name: str, command: object) -> tuple[str, ...]:
        await bench.call(name, command=command)
        effect: Any = bench.host.effects[-1]
        argv: tuple[str, ...] = effect.argv
        return argv

    assert await ran("shell_command", "true") == (bench.state.commands.shell.path, "-c", "true")
    assert await ran("shell", ["bash", "-lc", "true"]) == ("bash", "-c", "true")
    assert await ran("shell", ["bash", "-lc", "true", "argument"]) == ("bash", "-lc", "true", "argument")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shell", {"cmd": ["true"]}),
        ("shell_command", {"cmd": "true"}),
        ("exec_command", {"command": "true"}),
        ("container.exec", {"command": ["true"]}),
    ],
)
async def test_older_spellings(bench: Bench, name: str, arguments: dict[str, object]) -> None:
    output = await bench.output(name, **arguments, with_escalated_permissions=True, timeout=5000)
    assert output.success is True
    effect: Any = bench.host.effects[-1]
    assert effect.sandbox_permissions is SandboxPermissions.REQUIRE_ESCALATED


async def test_events_of_a_command(bench: Bench) -> None:
    await bench.call("shell_command", command="echo out; echo err >&2; exit 2")
    begin, *deltas, end = bench.host.told(ExecCommandBegin, ExecCommandOutputDelta, ExecCommandEnd)
    assert isinstance(begin, ExecCommandBegin) and begin.command[-1] == "echo out; echo err >&2; exit 2"
    assert {(delta.stream, delta.chunk) for delta in deltas} == {("stdout", b"out\n"), ("stderr", b"err\n")}
    assert (end.exit_code, end.output, end.timed_out) == (2, "out\nerr\n", False)


async def test_a_command_that_cannot_start_has_an_end_too(bench: Bench) -> None:
    text = await bench.call("shell", command=["./no-such-program"])
    assert text == "program not found: ./no-such-program"
    begin, end = bench.host.told(ExecCommandBegin, ExecCommandEnd)
    assert (begin.call_id, end.exit_code, end.output) == (end.call_id, 127, text)


async def test_what_the_orchestrator_has_to_say_is_read(bench: Bench) -> None:
    bench.host.notice = "The command ran twice."
    assert body(await bench.call("shell_command", command="echo hi")) == "hi\nThe command ran twice."
    result = bench.host.results[-1]
    assert (result.exit_code, result.transcript, result.timed_out) == (0, "hi\n", False)


@pytest.mark.parametrize("name", ["shell_command", "exec_command"])
async def test_an_interrupted_turn_ends_the_tree_of_the_call(bench: Bench, name: str) -> None:
    script = "echo $$; sleep 1000 & echo $!; wait"
    view = FunctionCall(call_id="c", name=name, arguments=msgspec.json.encode({"command": script}).decode())
    task = asyncio.create_task(bench.answer(view))
    await bench.host.until(lambda: bench.host.live().count("\n") == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pids = [int(pid) for pid in bench.host.live().split()]
    assert eventually(lambda: not any(map(alive, pids)))
    [end] = bench.host.told(ExecCommandEnd)
    assert end.output == bench.host.live(), "what it wrote until then"
    assert len(bench.state.commands.sessions) == 0


@pytest.mark.parametrize("name", ["shell", "shell_command", "exec_command"])
@pytest.mark.parametrize("prefix", ["", "cd sub && "])
async def test_a_patch_in_a_script_goes_to_the_patch_tool(bench: Bench, tmp_path: Path, name: str, prefix: str) -> None:
    (tmp_path / "sub").mkdir()
    script = f"{prefix}apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.txt\n+hi\n*** End Patch\nEOF\n"
    command = ["bash", "-lc", script] if name == "shell" else script
    output = await bench.output(name, command=command)
    assert output.success is True and "A new.txt" in output.text
    assert (tmp_path / ("sub" if prefix else "") / "new.txt").read_text() == "hi\n"
    assert bench.host.told(ExecCommandBegin) == []


async def test_a_patch_in_a_native_command(bench: Bench, tmp_path: Path) -> None:
    script = "apply_patch '*** Begin Patch\n*** Add File: new.txt\n+hi\n*** End Patch'"
    (one,) = (await native(bench, commands=[script])).output
    assert "A new.txt" in one.stdout and (tmp_path / "new.txt").exists()


async def test_a_wrong_patch_in_a_script_is_refused_like_a_call_of_the_tool(bench: Bench) -> None:
    script = "apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: none.txt\n*** End Patch\nEOF"
    output = await bench.output("shell_command", command=script)
    assert output.success is False and "none.txt" in output.text
    bare = await bench.call("shell_command", command="*** Begin Patch\n*** Delete File: none.txt\n*** End Patch")
    assert "without explicit call to apply_patch" in bare


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("shell_command", {"command": "true", "workdir": "missing"}, "missing' does not exist"),
        ("shell_command", {"command": "true", "workdir": "a\0b"}, "does not exist"),
        ("shell_command", {"command": "true", "timeout_ms": 0}, "timeout_ms must be at least 1 millisecond, not 0"),
        ("exec_command", {"cmd": "true", "timeout": -5}, "timeout must be at least 1 millisecond, not -5"),
        ("shell_command", {"command": "true", "sandbox_permissions": "all"}, "not 'all'"),
        ("exec_command", {"cmd": "true", "shell": "/no/such/shell"}, "/no/such/shell"),
        ("exec_command", {"cmd": "true", "shell": "nosuchshell"}, "nosuchshell"),
        ("shell", {"command": []}, "cannot run the command: it is empty"),
        ("shell_command", {"command": "true\0"}, "cannot run the command"),
        ("write_stdin", {"session_id": 999}, "write_stdin failed: Unknown process id 999"),
        ("write_stdin", {"session_id": 1000.5}, "a session ID must be a whole number, not 1000.5"),
    ],
)
async def test_bad_input_is_named(bench: Bench, name: str, arguments: dict[str, object], says: str) -> None:
    output = await bench.output(name, **arguments)
    assert output.success is False and says in output.text
    assert body(await bench.call("shell_command", command="echo alive")) == "alive\n"


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN"])
async def test_a_number_is_finite(bench: Bench, number: str) -> None:
    for name, arguments in [
        ("exec_command", f'{{"cmd":"true","yield_time_ms":{number}}}'),
        ("exec_command", f'{{"cmd":"true","max_output_tokens":{number}}}'),
        ("shell_command", f'{{"command":"true","timeout_ms":{number}}}'),
        ("write_stdin", f'{{"session_id":{number}}}'),
    ]:
        answer = await bench.answer(FunctionCall(call_id="c", name=name, arguments=arguments))
        assert "failed to parse function arguments" in answer.raw.decode()
    assert bench.host.effects == []


async def test_relative_and_empty_workdir(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert body(await bench.call("shell_command", command="pwd", workdir="sub")) == f"{tmp_path}/sub\n"
    assert body(await bench.call("shell_command", command="pwd", workdir="")) == f"{tmp_path}\n"
