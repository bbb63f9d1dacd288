"""`exec_command` and `write_stdin`: sessions, waits, input, limits, ends."""

import asyncio
import re
import time
from typing import Any

import pytest

from ferrule.process import sessions
from ferrule.process.interactive import MAX_UNSENT
from ferrule.process.sessions import MAX_SESSIONS, PROTECTED_SESSIONS, WARN_SESSIONS
from ferrule.protocol.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta, TerminalInteraction
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.truncation import OutputBudget
from tests.builtin.conftest import Benches
from tests.builtin.workbench import Bench, body, field, session_id
from tests.processes import alive, eventually

FINISHED = re.compile(
    r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess exited with code 3\n"
    r"Original token count: 1\nOutput:\nhi\n"
)
RUNNING = re.compile(
    r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess running with session ID \d{4,5}\n"
    r"Original token count: 1\nOutput:\nhi\n"
)


async def start(bench: Bench, cmd: str, **arguments: object) -> int:
    """Start a session that still runs after a quarter of a second."""
    return session_id(await bench.call("exec_command", cmd=cmd, yield_time_ms=250, **arguments))


async def test_a_command_that_ends_in_time(bench: Bench) -> None:
    output = await bench.output("exec_command", cmd="echo hi; exit 3")
    assert FINISHED.fullmatch(output.text)
    assert output.success is False
    assert len(bench.state.commands.sessions) == 0


async def test_a_command_that_goes_on(bench: Bench) -> None:
    output = await bench.output("exec_command", cmd="echo hi; sleep 60", yield_time_ms=250)
    assert RUNNING.fullmatch(output.text)
    assert output.success is True


async def test_a_poll_returns_at_the_end_and_once(bench: Bench) -> None:
    number = await start(bench, "echo one; sleep 0.6; echo two; exit 7")
    started = time.monotonic()
    text = await bench.call("write_stdin", session_id=number)
    assert time.monotonic() - started < 30
    assert (field(text, "Process exited with code"), body(text)) == ("7", "two\n")
    assert f"Unknown process id {number}" in await bench.call("write_stdin", session_id=number)


@pytest.mark.parametrize("asked", [0, -5, 250.0])
async def test_a_wait_has_a_least(bench: Bench, asked: float) -> None:
    text = await bench.call("exec_command", cmd="sleep 60", yield_time_ms=asked)
    assert 0.25 <= float(field(text, "Wall time:").split()[0]) < 30


async def test_a_call_with_input_says_how_long_it_waits_and_how_much_it_reads(bench: Bench) -> None:
    number = await start(bench, "read line; seq 1 1000; sleep 60", tty=True)
    text = await bench.call("write_stdin", session_id=number, chars="go\n", yield_time_ms=600, max_output_tokens=10)
    assert 0.6 <= float(field(text, "Wall time:").split()[0]) < 30
    assert "tokens truncated…" in body(text) and len(body(text)) < 200


async def test_a_conversation_with_a_terminal(bench: Bench) -> None:
    number = await start(bench, "stty -echo; echo ready; while read line; do echo got $line; done; echo bye", tty=True)
    await bench.host.until(lambda: "ready" in bench.host.live())
    text = await bench.call("write_stdin", session_id=number, chars="a\nb c\n")
    assert body(text).endswith("got a\ngot b c\n")
    text = await bench.call("write_stdin", session_id=number, chars="\x04", yield_time_ms=10_000)
    assert (field(text, "Process exited with code"), body(text)) == ("0", "bye\n")


async def test_tty_and_pipes(bench: Bench) -> None:
    script = "test -t 0; echo $?; test -t 1; echo $?; stty size 2>/dev/null; echo $COLUMNS"
    assert body(await bench.call("exec_command", cmd=script, tty=True)) == "0\n0\n50 200\n200\n"
    assert body(await bench.call("exec_command", cmd=script)) == "1\n1\n\n"
    assert [effect.tty for effect in bench.host.effects] == [True, False]  # type: ignore[union-attr]


async def test_stderr_comes_in_order(bench: Bench) -> None:
    assert body(await bench.call("exec_command", cmd="echo 1; echo 2 >&2; echo 3; echo 4 >&2")) == "1\n2\n3\n4\n"


async def test_a_character_in_two_portions(bench: Bench) -> None:
    number = await start(bench, r"printf 'x\303'; sleep 0.7; printf '\251\n'")
    first = bench.host.results[-1].collected.output.text()
    text = await bench.call("write_stdin", session_id=number)
    assert first + body(text) == "xé\n"


async def test_timeout_ends_a_session(bench: Bench) -> None:
    text = await bench.call("exec_command", cmd="echo early; sleep 60", timeout=300)
    assert field(text, "Process exited with code") == "124"
    assert body(text) == "command timed out after 300 milliseconds\nearly\n"
    number = await start(bench, "echo $$; sleep 60", timeout_ms=600)
    text = await bench.call("write_stdin", session_id=number)
    assert field(text, "Process exited with code") == "124"
    assert body(text).startswith("command timed out after 600 milliseconds\n")


async def test_output_is_cut_to_what_was_asked_for(bench: Bench) -> None:
    text = await bench.call("exec_command", cmd="seq 1 1000", max_output_tokens=10)
    assert field(text, "Original token count:") == "974"
    assert body(text) == (
        "Warning: truncated output (original token count: 974)\nTotal output lines: 1000\n\n"
        "1\n2\n3\n4\n5\n6\n7\n8\n9\n10…964 tokens truncated…96\n997\n998\n999\n1000\n"
    )
    assert body(await bench.call("exec_command", cmd="seq 1 1000", max_output_tokens=0)).endswith(
        "\n\n…974 tokens truncated…"
    )


async def test_no_more_than_the_session_allows(benches: Benches) -> None:
    bench = benches(budget=OutputBudget(10))
    text = await bench.call("exec_command", cmd="seq 1 1000", max_output_tokens=100_000)
    assert "…964 tokens truncated…" in text


async def test_login_and_shell(bench: Bench) -> None:
    commands = bench.state.commands
    await bench.call("exec_command", cmd="true")
    await bench.call("exec_command", cmd="true", shell="sh")
    await bench.call("exec_command", cmd="true", shell="/bin/sh", login=False)
    await bench.call("exec_command", cmd="true", shell="bash")
    argvs = [effect.argv for effect in bench.host.effects]  # type: ignore[union-attr]
    assert argvs[0] == (commands.shell.path, "-c", "true")
    assert argvs[1][1:] == ("-lc", "true") and argvs[1][0].endswith("/sh")
    assert argvs[2] == ("/bin/sh", "-c", "true")
    assert argvs[3][1:] == ("-c", "true"), "the start-up files of the user's own shell were read already"


async def test_events_of_a_session(bench: Bench) -> None:
    number = await start(bench, "echo hi; read x; echo $x", tty=True)
    await bench.call("write_stdin", session_id=number, chars="yes\n", yield_time_ms=10_000)
    events = bench.host.told(ExecCommandBegin, TerminalInteraction, ExecCommandEnd)
    begin, typed, end = events
    assert (begin.call_id, begin.process_id) == ("call_1", number)
    assert (typed.call_id, typed.process_id, typed.stdin) == ("call_1", number, "yes\n")
    assert (end.call_id, end.exit_code) == ("call_1", 0) and end.output.endswith("yes\r\n")
    result: Any = bench.host.results[0]
    assert (result.exit_code, result.transcript, result.timed_out) == (None, "", False)


async def test_an_end_that_nobody_waits_for_is_told(bench: Bench) -> None:
    await start(bench, "sleep 0.5; exit 4")
    await bench.host.until(lambda: bool(bench.host.told(ExecCommandEnd)))
    assert bench.host.told(ExecCommandEnd)[0].exit_code == 4


async def test_an_interrupted_wait_leaves_an_earlier_session(bench: Bench) -> None:
    number = await start(bench, "echo $$; exec sleep 60")
    pid = int(bench.host.live())
    view = FunctionCall(call_id="poll", name="write_stdin", arguments=f'{{"session_id":{number}}}')
    task = asyncio.create_task(bench.answer(view))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(pid)
    text = await bench.call("write_stdin", session_id=number, chars="\x03", yield_time_ms=10_000)
    assert field(text, "Process exited with code") == "130"


async def test_the_end_of_the_session_ends_all(bench: Bench) -> None:
    await asyncio.gather(*(start(bench, "echo $$; exec sleep 60", tty=tty) for tty in (True, False)))
    pids = [int(pid) for pid in bench.host.live().split()]
    await bench.close()
    assert len(pids) == 2 and eventually(lambda: not any(map(alive, pids)))


async def test_at_most_64_sessions(bench: Bench) -> None:
    calls = (bench.call("exec_command", cmd="exec sleep 60", yield_time_ms=250) for _ in range(MAX_SESSIONS))
    texts = await asyncio.gather(*calls)
    assert sum("sessions are open" in text for text in texts) == MAX_SESSIONS - WARN_SESSIONS + 1
    await start(bench, "exec sleep 60")
    assert len(bench.state.commands.sessions) == MAX_SESSIONS
    gone = [
        text
        for text in texts
        if "Unknown process id" in await bench.call("write_stdin", session_id=session_id(text), chars="\x03")
    ]
    assert gone == [texts[0]], "the least recently used one made room"


async def test_a_start_that_waits_for_an_eviction_tells_its_begin_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = PROTECTED_SESSIONS + 1
    monkeypatch.setattr(sessions, "MAX_SESSIONS", limit)
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    await asyncio.gather(*(start(bench, stubborn) for _ in range(limit)))
    text = await bench.call("exec_command", cmd="echo quick", yield_time_ms=10_000)
    assert body(text).startswith("quick\n")
    mine = [event for event in bench.host.events if getattr(event, "call_id", "") == f"call_{limit + 1}"]
    kinds = [
        type(event) for event in mine if isinstance(event, ExecCommandBegin | ExecCommandEnd | ExecCommandOutputDelta)
    ]
    assert kinds == [ExecCommandBegin, ExecCommandOutputDelta, ExecCommandEnd]


async def test_too_much_input(bench: Bench) -> None:
    number = await start(bench, "stty raw -echo; echo ready; sleep 60", tty=True)
    await bench.host.until(lambda: "ready" in bench.host.live())
    text = await bench.call("write_stdin", session_id=number, chars="x" * (MAX_UNSENT + 1))
    assert text.startswith("write_stdin failed: the process does not read")
    text = await bench.call("write_stdin", session_id=number, chars="x" * 100_000)
    assert re.search(r"\d+ bytes of the input were not read yet\.", text)


async def test_input_needs_a_terminal(bench: Bench) -> None:
    number = await start(bench, "sleep 60")
    text = await bench.call("write_stdin", session_id=number, chars="hello\n")
    assert text == (
        "write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open"
    )
