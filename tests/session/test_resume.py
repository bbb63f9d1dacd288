"""A session on disk, and going on with it."""

import asyncio
import json
import os
import resource
import stat
from pathlib import Path

import msgspec
import pytest

from ferrule import tool
from ferrule.history.pairs import settled
from ferrule.model.stream import Model
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import WarningEvent
from ferrule.protocol.items import FunctionCallOutput, make_item
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess, ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import ModelSettings, Settings
from ferrule.session.lines import SessionMeta
from ferrule.session.opening import open_session
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import (
    Rollout,
    find_rollout,
    new_session_id,
    read_rollout,
    stored_rollouts,
)
from ferrule.session.session import Session
from ferrule.session.sources import ToolLike
from tests.session.models import InProcessModel, calls, says

TOOLS: list[ToolLike] = []


@tool(read_only=True)
async def quick(text: str = "") -> str:
    return f"quick {text}"


@tool(read_only=True)
async def large() -> str:
    return "x" * 1_000_000


def settings(tmp_path: Path, **changes: object) -> Settings:
    made = Settings(cwd=str(tmp_path), home=str(tmp_path / "home"), model=ModelSettings(model="m"))
    return msgspec.structs.replace(made, **changes)


async def opened(settings: Settings, model: Model, **more: object) -> Session:
    return await open_session(settings, tools=[quick, large], model=model, **more)  # type: ignore[arg-type]


async def test_b143_history_after_resume_is_what_it_was(tmp_path: Path) -> None:
    batch = [
        says("Looking."),
        *(calls("quick", f'{{"text":"{n}"}}', f"c{n}") for n in range(4)),
        calls("large", "{}", "c4"),
    ]
    async with await opened(settings(tmp_path), InProcessModel(batch, [says("Done.")])) as session:
        await session.run("go")
        before = session.history.items
    resumed, stored = resume_settings(settings(tmp_path), None, Given())
    model = InProcessModel([says("Still here.")])
    async with await opened(resumed, model, stored=stored) as session:
        assert session.history.items == before
        await session.run("and now?")
    assert [item.raw for item in model.requests[0].items][: len(before)] == [item.raw for item in before]
    assert len(model.requests[0].items) == len(before) + 1


async def test_answers_are_on_disk_as_soon_as_they_are_there(tmp_path: Path) -> None:
    done = asyncio.Event()

    @tool(read_only=True)
    async def stalls() -> str:
        done.set()
        await asyncio.Event().wait()
        return ""

    model = InProcessModel([calls("stalls", "{}", "a"), calls("quick", "{}", "b")])
    session = await open_session(settings(tmp_path), tools=[quick, stalls], model=model)
    running = asyncio.create_task(session.run("go"))
    await done.wait()
    path = find_rollout(str(tmp_path / "home"), session.id)
    async with asyncio.timeout(30):
        while b"quick " not in path.read_bytes():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0)
    crashed = settled(read_rollout(path).responses)  # as if the process had died here
    outputs = {item.view.call_id: item.view.output for item in crashed if isinstance(item.view, FunctionCallOutput)}
    assert outputs == {"a": "aborted", "b": "quick "}
    assert list(outputs) == ["a", "b"]
    session.interrupt()
    await running
    await session.aclose()


async def test_a_half_written_line_is_skipped(tmp_path: Path) -> None:
    async with await opened(settings(tmp_path), InProcessModel([says("hi")])) as session:
        await session.run("go")
    path = find_rollout(str(tmp_path / "home"), None)
    whole = settled(read_rollout(path).responses)
    path.write_bytes(path.read_bytes() + b'{"timestamp":"x","type":"response_item","payl')
    stored = read_rollout(path)
    assert stored.skipped_lines == 1
    assert settled(stored.responses) == whole


async def test_what_follows_a_half_written_line_is_kept(tmp_path: Path) -> None:
    async with await opened(settings(tmp_path), InProcessModel([says("hi")])) as session:
        await session.run("go")
    path = find_rollout(str(tmp_path / "home"), None)
    path.write_bytes(path.read_bytes() + b'{"timestamp":"x","type":"response_item","payl')
    stored = read_rollout(path)
    async with await opened(settings(tmp_path), InProcessModel([says("again")]), stored=stored) as session:
        await session.run("go on")
        history = session.history.items
    assert settled(read_rollout(path).responses) == list(history)
    whole = [
        line for line in path.read_bytes().splitlines() if line and b'"payl' not in line.replace(b'"payload"', b"")
    ]
    assert [json.loads(line)["type"] for line in whole].count("turn_context") == 2
    assert read_rollout(path).skipped_lines == 1


def test_a_line_that_did_not_fit_on_the_disk_costs_only_itself(tmp_path: Path) -> None:
    rollout = Rollout.create(str(tmp_path), new_session_id())
    rollout.meta(SessionMeta(new_session_id(), "now", "/"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (rollout.path.stat().st_size + 100, before[1]))  # like a full disk
    try:
        with pytest.raises(OSError, match="large"):
            rollout.item(make_item(says("lost" * 100)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept = make_item(says("kept"))
    rollout.item(kept)
    rollout.close()
    stored = read_rollout(rollout.path)
    assert stored.skipped_lines == 1
    assert settled(stored.responses) == [kept]


async def test_a_response_without_its_end_is_answered_before_the_user_speaks_again(tmp_path: Path) -> None:
    model = InProcessModel([says("Looking."), calls("quick", "{}", "c")], [says("Done.")])
    async with await opened(settings(tmp_path), model) as session:
        await session.run("go")
    path = find_rollout(str(tmp_path / "home"), None)
    lines = path.read_bytes().splitlines(keepends=True)
    crashed = next(index for index, line in enumerate(lines) if b"function_call_output" in line)
    path.write_bytes(b"".join(lines[:crashed]))  # as if the process had died while the tool ran
    for answer in ("one", "two"):
        stored = read_rollout(path)
        async with await opened(settings(tmp_path), InProcessModel([says(answer)]), stored=stored) as session:
            await session.run(f"go on {answer}")
            history = list(session.history.items)
        assert settled(read_rollout(path).responses) == history
    kinds = [str(item.view.__struct_config__.tag) for item in history]
    assert kinds[-6:] == ["function_call", "function_call_output", "message", "message", "message", "message"]


async def test_sessions_are_private(tmp_path: Path) -> None:
    async with await opened(settings(tmp_path), InProcessModel([says("hi")])) as session:
        await session.run("go")
    path = find_rollout(str(tmp_path / "home"), None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["type"] for line in lines][:2] == ["session_meta", "response_item"]
    assert "turn_context" in [line["type"] for line in lines]
    assert lines[0]["payload"]["cwd"] == str(tmp_path)


async def test_a_session_that_cannot_be_saved_goes_on(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, not a folder")
    events: list[object] = []

    class FrontEnd:
        can_answer = False

        def on_event(self, event: object) -> None:
            events.append(event)

    session = await open_session(settings(tmp_path), FrontEnd(), tools=[], model=InProcessModel([says("hi")]))
    assert (await session.run("go")).text == "hi"
    assert sum(isinstance(event, WarningEvent) for event in events) == 1
    await session.aclose()


async def store_one(tmp_path: Path, folder: Path, **changes: object) -> None:
    made = settings(tmp_path, cwd=str(folder), **changes)
    async with await opened(made, InProcessModel([says("hi")])) as session:
        await session.run("go")


async def test_b155_resume_keeps_directory_and_policy(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    await store_one(tmp_path, project, sandbox_policy=ReadOnly(), approval_policy=AskForApproval.UNTRUSTED)
    elsewhere = settings(tmp_path, sandbox_policy=DangerFullAccess(), approval_policy=AskForApproval.NEVER)

    kept, _ = resume_settings(elsewhere, None, Given())
    assert (kept.cwd, kept.sandbox_policy, kept.approval_policy) == (str(project), ReadOnly(), AskForApproval.UNTRUSTED)
    assert kept.model.model == "m"

    asked = settings(tmp_path, sandbox_policy=WorkspaceWrite())
    given, _ = resume_settings(asked, None, Given(cwd=True, sandbox=True))
    assert (given.cwd, given.sandbox_policy) == (str(tmp_path), WorkspaceWrite())
    assert given.approval_policy is AskForApproval.UNTRUSTED


async def test_b155_resume_stops_when_the_directory_is_gone(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    await store_one(tmp_path, project)
    project.rmdir()
    with pytest.raises(UsageError, match=r"directory .*/p no longer exists; choose another one with -C"):
        resume_settings(settings(tmp_path), None, Given())


async def test_a_session_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with pytest.raises(UsageError, match="there is no session to resume"):
        find_rollout(home, None)
    await store_one(tmp_path, tmp_path)
    await store_one(tmp_path, tmp_path)
    first, second = stored_rollouts(home)
    os.utime(first, ns=(second.stat().st_mtime_ns + 1,) * 2)
    assert find_rollout(home, None) == first
    assert find_rollout(home, second.stem[-36:]) == second
    with pytest.raises(UsageError, match="2 sessions have an id that begins with"):
        find_rollout(home, second.stem[-36:-30])
    for empty in ("", " "):  # a variable of a script that is not set
        with pytest.raises(UsageError, match="the id of a session is empty; the newest is"):
            find_rollout(home, empty)
    with pytest.raises(UsageError, match="no session has an id that begins with 'zz'"):
        find_rollout(home, "zz")


def test_ids_sort_by_time() -> None:
    made = [new_session_id() for _ in range(3)]
    assert [value[14] for value in made] == ["7"] * 3
    assert len(set(made)) == 3
    assert made[0][:12] <= made[2][:12]


@pytest.mark.parametrize("written", [b"", b'{"timestamp":"2026-11-28T10:00:00.000Z","type":"session_me'])
async def test_a_session_that_was_killed_before_its_first_line_is_passed_over(tmp_path: Path, written: bytes) -> None:
    await store_one(tmp_path, tmp_path)
    home = str(tmp_path / "home")
    path = find_rollout(home, None)
    later = path.with_name(f"{path.stem[:-36]}{new_session_id()}.jsonl")
    later.write_bytes(written)
    os.utime(later, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
    assert find_rollout(home, None) == find_rollout(home, None, str(tmp_path)) == path
