import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ferrule.process import outputs
from ferrule.process.launcher import Pipes, Pty, Stdio
from ferrule.process.outputs import StreamName
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import Completed, run
from tests.processes import alive, eventually, gained, held

Env = Mapping[str, str]
KINDS: list[Stdio] = [Pipes(), Pty()]

SPIN = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
while True: pass
"""
DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(60)
"""
OWN_GROUP = """
import os, subprocess, sys, time
os.setpgid(0, 0)
pids = [subprocess.Popen(["sleep", "60"]).pid for _ in range(2)]
open(sys.argv[1], "w").write(" ".join(map(str, [os.getpid(), *pids])))
time.sleep(60)
"""


async def bash(env: Env, script: str, *, timeout_ms: int | None = 20_000, **options: object) -> Completed:
    argv = ["bash", "-c", script]
    return await run(PlainLauncher(), argv, env=env, cwd="/tmp", timeout_ms=timeout_ms, **options)  # type: ignore[arg-type]


async def timed_out(env: Env, script: str, begun: Callable[[Completed], bool], stdio: Stdio = KINDS[0]) -> Completed:
    """Run into the timeout. Where a busy machine did not let the script begin, run it again with more time."""
    for timeout_ms in (250, 1_000, 3_000, 9_000):
        done = await bash(env, script, timeout_ms=timeout_ms, stdio=stdio)
        assert done.timed_out
        if begun(done):
            return done
    raise AssertionError(f"not begun within 9 s: {script}")


def pids_in(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def left_running(done: Completed) -> int:
    assert done.notice and done.notice.startswith("Left running: ")
    return int(done.notice.removeprefix("Left running: ").split()[0])


async def test_streams_are_kept_apart_and_together(env: Env) -> None:
    done = await bash(env, "echo one; sleep 0.05; echo two >&2; sleep 0.05; echo three")
    assert done.stdout.text() == "one\nthree\n"
    assert done.stderr.text() == "two\n"
    assert done.output.text() == "one\ntwo\nthree\n"
    assert 0.1 <= done.duration < 30


async def test_merged_pipes_keep_the_order_of_writing(env: Env) -> None:
    done = await bash(env, "for i in $(seq 200); do echo out; echo err >&2; done", stdio=Pipes(merge=True))
    assert done.output.text() == "out\nerr\n" * 200
    assert done.stdout == done.output and done.stderr.total == 0


@pytest.mark.parametrize(
    "script",
    ["sleep 60 & echo done", "sleep 60 </dev/null >/dev/null & echo done", "python3 -m http.server 0 2>&1 & echo done"],
)
async def test_b032_a_background_child_does_not_hold_the_call(env: Env, script: str) -> None:
    done = await bash(env, script)
    pid = left_running(done)
    try:
        assert done.duration < 15
        assert (done.output.text().split()[0], done.exit_code) == ("done", 0)
        assert alive(pid)
    finally:
        os.kill(pid, 9)


async def test_b032_a_silent_background_child_is_told_as_well(env: Env) -> None:
    done = await bash(env, "sleep 60 </dev/null >/dev/null 2>&1 & sleep 0.1; echo done")
    pid = left_running(done)
    os.kill(pid, 9)
    assert done.notice == f"Left running: {pid} (sleep 60)."


async def test_b032_who_lives_on_may_write_on(env: Env, tmp_path: Path) -> None:
    before = held()
    script = f"(sleep 0.4; for i in $(seq 20000); do echo a long line of some log; done; echo $? > {tmp_path}/code) &"
    done = await bash(env, script)
    left_running(done)
    while not pids_in(tmp_path / "code") or gained(before).descriptors:  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.01)
    assert pids_in(tmp_path / "code") == [0]


async def test_nothing_is_told_of_a_clean_end(env: Env) -> None:
    assert (await bash(env, "sleep 0.01 & wait; echo done")).notice is None


async def test_b034_no_job_control(env: Env) -> None:
    done = await bash(env, "echo $-; sleep 60 &")
    os.kill(left_running(done), 9)
    assert "m" not in done.output.text() and "i" not in done.output.text()


async def test_a_helper_may_finish_its_last_line(env: Env) -> None:
    done = await bash(env, "echo first > >(sleep 0.05; cat)")
    assert done.output.text() == "first\n"


async def test_output_that_others_keep_writing_does_not_hold_the_call(env: Env) -> None:
    done = await bash(env, "echo done; yes & sleep 0.1")
    os.kill(left_running(done), 9)
    assert done.duration < 15 and done.stdout.head.count(b"done\n") == 1


async def test_b035_timeout_ends_the_worker(env: Env, tmp_path: Path) -> None:
    script = f"echo before; python3 -c '{SPIN}' {tmp_path}/pid; true"
    done = await timed_out(env, script, lambda _: pids_in(tmp_path / "pid") != [])
    assert (done.output.text(), done.exit_code) == ("before\n", 124)
    assert done.duration < 30
    assert not any(map(alive, pids_in(tmp_path / "pid")))


async def test_timeout_ends_what_ignores_term(env: Env) -> None:
    script = "trap '' TERM; echo ready; exec sleep 60"
    done = await timed_out(env, script, lambda done: done.output.text() == "ready\n")
    assert done.status.signal == 9


@pytest.mark.parametrize("stdio", KINDS)
async def test_what_is_written_on_term_is_captured(env: Env, stdio: Stdio) -> None:
    script = "trap 'echo cleaning; exit 0' TERM; echo ready; sleep 60 & wait"
    done = await timed_out(env, script, lambda done: "ready" in done.output.text(), stdio)
    assert done.output.text().split() == ["ready", "cleaning"] and done.exit_code == 124


@pytest.mark.parametrize("stdio", KINDS)
async def test_a_shell_does_not_go_on_when_its_child_is_ended(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    script = f"sleep 60; touch {tmp_path}/went-on; sleep 60; touch {tmp_path}/went-on"
    for _ in range(20):
        assert (await bash(env, script, timeout_ms=20, stdio=stdio)).timed_out
    assert not (tmp_path / "went-on").exists()


@pytest.mark.parametrize("stdio", KINDS)
async def test_b037_descendants_that_left_the_group_are_ended(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    await timed_out(env, f"python3 -c '{OWN_GROUP}' {pids}; true", lambda _: len(pids_in(pids)) == 3, stdio)
    assert not any(map(alive, pids_in(pids)))


@pytest.mark.parametrize("stdio", KINDS)
async def test_b037_daemons_are_ended(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    script = f"python3 -c '{DAEMON}' {pids}; sleep 60"
    await timed_out(env, script, lambda _: pids_in(pids) != [], stdio)
    assert not any(map(alive, pids_in(pids)))


async def test_b037_a_child_that_hides_is_found_by_descent(env: Env, tmp_path: Path) -> None:
    hidden = f"env -i setsid bash -c 'echo $$ > {tmp_path}/pid; sleep 60; true'; true"
    await timed_out(env, hidden, lambda _: pids_in(tmp_path / "pid") != [])
    assert not any(map(alive, pids_in(tmp_path / "pid")))


async def test_what_cannot_be_killed_does_not_hold_the_call(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.process.run.UNDYING_GRACE", 0.3)
    real = os.kill

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", forbidden)
    monkeypatch.setattr(os, "killpg", forbidden)
    before = held()
    done = await bash(env, "echo before; exec sleep 60", timeout_ms=1_000)
    assert (done.output.text(), done.exit_code) == ("before\n", 124) and done.duration < 30
    real(left_running(done), 9)
    while gained(before).descriptors:  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.01)


async def test_a_stopped_process_is_ended(env: Env) -> None:
    done = await bash(env, "kill -STOP $$", timeout_ms=300)
    assert done.timed_out and done.exit_code == 124


@pytest.mark.parametrize("stdio", KINDS)
async def test_cancellation_ends_the_tree(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    before = held()
    task = asyncio.create_task(bash(env, f"python3 -c '{OWN_GROUP}' {pids}; true", stdio=stdio))
    while len(pids_in(pids)) < 3:  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # an impatient user
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(map(alive, pids_in(pids)))
    assert not gained(before).descriptors


async def test_large_input_is_interleaved_with_output(env: Env) -> None:
    data = os.urandom(3_000_000)
    done = await run(
        PlainLauncher(), ["cat"], env=env, cwd="/tmp", stdin=data, timeout_ms=20_000, capture_bytes=4_000_000
    )
    assert done.stdout.render() == data


async def test_empty_input_is_an_end_of_file(env: Env) -> None:
    assert (await bash(env, "wc -c", stdin=b"")).output.text().strip() == "0"


@pytest.mark.parametrize("script", ["true", "exec 0<&-; echo closed", "head -c 10 >/dev/null"])
async def test_b055_input_that_nobody_reads_is_harmless(env: Env, script: str) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    assert (await bash(env, script, stdin=b"x" * 1_000_000)).exit_code == 0
    assert faults == []


async def test_b047_both_ends_and_the_exit_code_are_kept(env: Env) -> None:
    script = "for i in $(seq 1 20000); do echo line $i; done; echo FAIL; exit 1"
    done = await bash(env, script, capture_bytes=2_000)
    text = done.output.text()
    assert text.startswith("line 1\nline 2\n") and text.endswith("line 20000\nFAIL\n")
    assert f"\n... {done.output.total - 2_000} bytes omitted ...\n" in text
    assert done.exit_code == 1


async def test_invalid_utf8_and_nul_pass(env: Env) -> None:
    assert (await bash(env, r"printf 'a\0b\377c'")).output.text() == "a\0b\ufffdc"


async def test_live_output_is_told_and_capped(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_DELTAS", 3)
    told: list[tuple[StreamName, bytes]] = []
    script = "for i in 1 2 3 4 5; do echo $i; sleep 0.02; done"
    done = await bash(env, script, on_output=lambda stream, data: told.append((stream, data)))
    assert len(told) == 3 and told[0] == ("stdout", b"1\n")
    assert done.output.text() == "1\n2\n3\n4\n5\n"


async def test_a_fault_of_the_listener_reaches_the_caller(env: Env) -> None:
    def fail(stream: StreamName, data: bytes) -> None:
        raise RuntimeError("listener")

    before = held()
    with pytest.raises(RuntimeError, match="listener"):
        await bash(env, "echo x", on_output=fail)
    assert not gained(before).descriptors


@pytest.mark.parametrize("stdio", KINDS)
async def test_b053_git_waits_for_nobody(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    user = {**env, "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    setup = (
        f"cd {tmp_path}; git init -q .; git config user.email a@b; git config user.name n; "
        "for i in $(seq 60); do git commit -q --allow-empty -m c$i; done; git rev-parse HEAD"
    )
    head = (await bash(user, setup)).output.text().split()[-1]
    script = (
        f"cd {tmp_path}; git log; git commit --allow-empty; echo commit $?; git rebase -i HEAD~3; echo rebase $?; "
        "git commit --amend --allow-empty; echo amend $?; "
        "git push https://127.0.0.1:1/x; echo push $?; git rev-parse HEAD"
    )
    done = await bash(user, script, timeout_ms=15_000, stdio=stdio)
    text = done.output.text()
    assert not done.timed_out
    assert "commit 1" in text and "rebase 1" in text and "amend 1" in text and "push 128" in text
    assert done.stdout.text().split()[-1] == head


async def test_the_loop_stays_responsive_under_a_flood(env: Env) -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    ticking = asyncio.create_task(tick())
    done = await bash(env, "head -c 100000000 /dev/zero")
    ticking.cancel()
    assert done.output.total == 100_000_000 and turns > 100


async def test_left_running_processes_are_gone_after_the_tests(env: Env) -> None:
    done = await bash(env, "setsid sleep 60 & echo done")
    pid = left_running(done)
    os.kill(pid, 9)
    assert eventually(lambda: not alive(pid))
