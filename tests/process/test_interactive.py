import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from ferrule.process.interactive import (
    MAX_UNSENT,
    TERMINAL_LINE_BYTES,
    Collected,
    Ended,
    Session,
    StdinClosed,
    clamp_yield,
)
from ferrule.process.launcher import LaunchError, Pipes, Pty, Stdio
from ferrule.process.plain import PlainLauncher
from tests.processes import alive, children, gained, held

Start = Callable[..., Awaitable[Session]]
WITH_INPUT: list[Stdio] = [Pipes(stdin=True, merge=True), Pty()]


@pytest.fixture
async def start(env: Mapping[str, str]) -> AsyncIterator[Start]:
    sessions: list[Session] = []

    async def start(*argv: str, **options: object) -> Session:
        session = await Session.start(PlainLauncher(), argv, env=env, cwd="/tmp", **options)  # type: ignore[arg-type]
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        await session.end()


def forbidden(pid: int, number: int) -> None:
    raise PermissionError(1, "Operation not permitted")


async def until(session: Session, wanted: str) -> str:
    """Collect until the text has come."""
    text = ""
    for _ in range(200):
        collected = await session.collect(50)
        text += collected.output.text()
        if wanted in text or collected.ended:
            break
    assert wanted in text
    return text


async def until_end(session: Session) -> tuple[str, Ended]:
    collected = await session.collect(20_000)
    assert collected.ended
    return collected.output.text(), collected.ended


async def test_a_short_command_ends_within_the_first_collection(start: Start) -> None:
    text, ended = await until_end(await start("bash", "-c", "echo hi; exit 3"))
    assert (text, ended.exit_code, ended.notice) == ("hi\n", 3, None)


async def test_output_comes_in_portions_and_once(start: Start) -> None:
    session = await start("bash", "-c", "echo one; read x; echo two $x", stdio=Pipes(stdin=True, merge=True))
    assert await until(session, "one") == "one\n"
    first = await session.collect(1)
    assert first.ended is None and first.output.total == 0
    await session.write(b"more\n")
    text, ended = await until_end(session)
    assert text == "two more\n"
    assert ended.transcript.text() == "one\ntwo more\n"
    assert (await session.collect(1)).output.total == 0


async def test_exit_is_told_to_the_watcher_without_a_collection(start: Start) -> None:
    told: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
    await start("bash", "-c", "echo out; exit 5", on_exit=told.set_result)
    ended = await told
    assert (ended.exit_code, ended.transcript.text()) == (5, "out\n")


async def test_a_cancelled_collection_loses_nothing_and_kills_nothing(start: Start) -> None:
    session = await start("bash", "-c", "echo kept; read x; echo end", stdio=Pipes(stdin=True, merge=True))
    waiting = asyncio.create_task(session.collect(20_000))
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await session.write(b"\n")
    assert (await until_end(session))[0] == "kept\nend\n"


async def test_the_wait_ends_in_time(start: Start) -> None:
    collected = await (await start("sleep", "60")).collect(250)
    assert collected.ended is None and 0.24 <= collected.wall_seconds < 30


async def test_stdin_is_closed_without_a_terminal(start: Start) -> None:
    session = await start("sleep", "60")
    with pytest.raises(StdinClosed, match="rerun exec_command with tty=true"):
        await session.write(b"hello\n")


@pytest.mark.parametrize("stdio", WITH_INPUT)
async def test_b043_a_large_input_is_interleaved(start: Start, stdio: Stdio) -> None:
    line = b"x" * 99 + b"\n"
    session = await start("bash", "-c", "stty -echo 2>/dev/null; echo ready; exec wc -c", stdio=stdio)
    await until(session, "ready")
    await session.write(line * 10_000)
    await session.write(b"\x04" if isinstance(stdio, Pty) else b"")
    if not isinstance(stdio, Pty):
        session.close_stdin()
    text, ended = await until_end(session)
    assert text.split()[-1] == "1000000" and ended.exit_code == 0


@pytest.mark.parametrize("stdio", WITH_INPUT)
async def test_b043_all_of_a_large_input_comes_back(start: Start, stdio: Stdio) -> None:
    session = await start("bash", "-c", "stty -echo 2>/dev/null; echo ready; exec cat", stdio=stdio)
    await until(session, "ready")
    data = b"".join(b"%099d\n" % n for n in range(10_000))
    await session.write(data)
    got = b""
    while len(got) < len(data):
        collected = await session.collect(20)
        assert collected.output.omitted == 0
        got += collected.output.render().replace(b"\r", b"")
    assert got.lstrip() == data
    assert (await session.collect(1)).unsent == 0


async def test_a_process_that_does_not_read_blocks_nobody(start: Start) -> None:
    session = await start("sleep", "60", stdio=Pipes(stdin=True))
    started = time.monotonic()
    await session.write(b"x" * 1_000_000)
    assert (await session.collect(50)).unsent > 800_000
    assert time.monotonic() - started < 30
    with pytest.raises(StdinClosed, match="does not read"):
        await session.write(b"x" * MAX_UNSENT)


async def test_b044_a_line_that_the_terminal_cuts_is_warned_of(start: Start) -> None:
    session = await start("python3", "-c", "print('ready'); print(len(input()))", stdio=Pty())
    await until(session, "ready")
    assert await session.write(b"A" * TERMINAL_LINE_BYTES) is None
    warning = await session.write(b"A" * 5000 + b"\n")
    assert warning and "4095 bytes of a line" in warning and "9095" in warning
    assert (await until_end(session))[0].split()[-1] == "4095"


async def test_b044_many_lines_below_the_limit_are_exact(start: Start) -> None:
    session = await start("bash", "-c", "stty -echo; echo ready; wc -c", stdio=Pty())
    await until(session, "ready")
    assert await session.write((b"A" * 4000 + b"\n") * 50 + b"\x04") is None
    assert (await until_end(session))[0].split()[-1] == str(4001 * 50)


async def test_b044_raw_mode_has_no_limit(start: Start) -> None:
    session = await start("bash", "-c", "stty raw -echo; echo ready; head -c 10001 | wc -c", stdio=Pty())
    await until(session, "ready")
    assert await session.write(b"A" * 10_000 + b"\n") is None
    assert (await until_end(session))[0].split()[-1] == "10001"


@pytest.mark.parametrize("stdio", [Pipes(merge=True), Pty()])
async def test_b056_interrupt_reaches_the_handler(start: Start, stdio: Stdio) -> None:
    script = "trap 'echo got; exit 7' INT; echo ready; sleep 5 & wait"
    session = await start("sh", "-c", script, stdio=stdio)
    await until(session, "ready")
    await session.write(b"\x03")
    text, ended = await until_end(session)
    assert "got" in text and ended.exit_code == 7
    # A shell starts background jobs deaf to SIGINT; the end of a terminal is soon theirs, too.
    if ended.notice and isinstance(stdio, Pipes):
        pid = int(ended.notice.split()[2])
        assert alive(pid)


@pytest.mark.parametrize("stdio", [Pipes(merge=True), Pty()])
async def test_b056_default_death_is_130(start: Start, stdio: Stdio) -> None:
    session = await start("bash", "-c", "echo ready; exec sleep 60", stdio=stdio)
    await until(session, "ready")
    await session.write(b"\x03")
    _, ended = await until_end(session)
    assert (ended.exit_code, ended.status.signal) == (130, 2)


@pytest.mark.parametrize("typed", [True, False])
async def test_b056_only_the_foreground_of_a_terminal_is_interrupted(start: Start, typed: bool) -> None:
    session = await start("bash", "--norc", "-i", stdio=Pty())
    await session.write(b"bash -c 'echo rea''dy; exec sleep 60'\n")
    await until(session, "ready")
    await (session.write(b"\x03") if typed else session.interrupt())
    await session.write(b"echo code $?; exit 4\n")
    text, ended = await until_end(session)
    assert "code 130" in text and ended.exit_code == 4


async def test_b056_interrupt_overtakes_input_that_waits(start: Start) -> None:
    session = await start("bash", "-c", "stty -echo; echo ready; sleep 60", stdio=Pty())
    await until(session, "ready")
    await session.write(b"line\n" * 100_000)
    assert (await session.collect(20)).unsent
    await session.write(b"\x03")
    assert (await until_end(session))[1].exit_code == 130


async def test_b055_a_closed_stdin_is_an_error_of_this_call(start: Start) -> None:
    session = await start("bash", "-c", "exec 0<&-; echo ready; sleep 60", stdio=Pipes(stdin=True, merge=True))
    await until(session, "ready")
    with pytest.raises(StdinClosed, match="failed to write to stdin"):
        await session.write(b"hello\n")
    assert (await session.collect(1)).ended is None


@pytest.mark.parametrize("stdio", WITH_INPUT)
async def test_b055_writing_after_the_exit(start: Start, stdio: Stdio) -> None:
    session = await start("true", stdio=stdio)
    await until_end(session)
    with pytest.raises(StdinClosed, match="has ended"):
        await session.write(b"hello\n")


async def test_timeout_of_the_whole_session(start: Start) -> None:
    session = await start("bash", "-c", "echo before; sleep 60", timeout_ms=1_000)
    text, ended = await until_end(session)
    assert (text, ended.exit_code, ended.timed_out) == ("before\n", 124, True)


async def test_end_is_told_and_repeatable(start: Start) -> None:
    told: list[Ended] = []
    session = await start("sleep", "60", on_exit=told.append)
    await asyncio.gather(session.end(), session.end())
    await session.end()
    assert [ended.status.signal for ended in told] == [15]


async def test_what_cannot_be_killed_does_not_hold_the_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await start("bash", "-c", "echo $$; exec sleep 60")
    pid = int(await until(session, "\n"))
    monkeypatch.setattr("ferrule.process.interactive.UNDYING_GRACE", 0.3)
    with monkeypatch.context() as forbidding:
        forbidding.setattr(os, "kill", forbidden)
        forbidding.setattr(os, "killpg", forbidden)
        started = time.monotonic()
        await session.end()
        assert time.monotonic() - started < 30
    os.kill(pid, 9)
    while pid in children():  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.01)


async def test_a_flood_is_bounded_and_counted(start: Start) -> None:
    session = await start("bash", "-c", "head -c 5000000 /dev/zero; echo; echo last")
    collected: Collected = await session.collect(20_000)
    assert collected.output.total == 5_000_006
    assert collected.output.omitted == 5_000_006 - 1024 * 1024
    assert collected.output.tail.endswith(b"\nlast\n")


async def test_descriptors_are_closed_at_the_exit_and_not_at_the_collection(start: Start) -> None:
    before = held()
    told = asyncio.Event()
    await start("true", stdio=Pty(), on_exit=lambda ended: told.set())
    assert gained(before).descriptors
    await told.wait()
    assert not gained(before).descriptors


async def test_a_failed_start(start: Start) -> None:
    with pytest.raises(LaunchError, match="no-such-program"):
        await start("no-such-program", stdio=Pty())


def test_nothing_outlives_the_loop(env: Mapping[str, str]) -> None:
    async def leave() -> None:
        await Session.start(PlainLauncher(), ["sleep", "60"], env=env, cwd="/tmp", stdio=Pty())

    before = held()
    asyncio.run(leave())  # the fixture looks for the child
    assert not gained(before).descriptors


@pytest.mark.parametrize(
    ("asked", "poll", "given"),
    [(0, False, 250), (10_000, False, 10_000), (99_999, False, 30_000), (0, True, 5_000), (10**9, True, 300_000)],
)
def test_clamps(asked: int, poll: bool, given: int) -> None:
    assert clamp_yield(asked, poll) == given
