"""A session file belongs to one open session at a time, whichever process has it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import ModelSettings, Settings
from ferrule.session.index import SessionIndex
from ferrule.session.opening import open_session
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import Rollout, find_rollout, read_rollout
from ferrule.session.session import Session
from tests.session.models import InProcessModel, says

HOLDS = """
import sys
from pathlib import Path
from ferrule.session.rollout import Rollout, read_rollout
rollout = Rollout.go_on(read_rollout(Path(sys.argv[1])))
print("open", flush=True)
sys.stdin.read()
"""


def settings(folder: Path) -> Settings:
    return Settings(cwd=str(folder), home=str(folder / "home"), model=ModelSettings(model="m"))


async def begun(folder: Path) -> Session:
    """An open session with one turn."""
    session = await open_session(settings(folder), tools=[], model=InProcessModel([says("hi")]))
    await session.run("go")
    return session


async def resumed(folder: Path, session_id: str) -> Session:
    made, stored = resume_settings(settings(folder), session_id, Given())
    return await open_session(made, tools=[], model=InProcessModel([says("again")]), stored=stored)


@pytest.fixture
async def stored(tmp_path: Path) -> str:
    """The id of a session that was closed."""
    session = await begun(tmp_path)
    await session.aclose()
    return session.id


@pytest.fixture
def holder(tmp_path: Path, stored: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has the session open."""
    path = str(find_rollout(str(tmp_path / "home"), stored))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        yield process
        process.kill()


async def test_a_session_is_resumed_by_one_process_at_a_time(
    tmp_path: Path, stored: str, holder: "subprocess.Popen[str]"
) -> None:
    before = find_rollout(str(tmp_path / "home"), stored).read_bytes()
    where = f"process {holder.pid}" if sys.platform == "linux" else "another process"
    with pytest.raises(UsageError) as refused:
        await resumed(tmp_path, stored)
    assert str(refused.value) == (
        f"session {stored} is open in {where}; end it there first, or go on in a copy: ferrule sessions fork {stored}"
    )
    assert find_rollout(str(tmp_path / "home"), stored).read_bytes() == before
    async with await resumed(tmp_path, SessionIndex(str(tmp_path / "home")).fork(stored)) as copy:
        assert (await copy.run("and now?")).text == "again"


async def test_a_killed_process_holds_no_session(tmp_path: Path, stored: str, holder: "subprocess.Popen[str]") -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    async with await resumed(tmp_path, stored) as session:
        assert (await session.run("and now?")).text == "again"


async def test_an_open_session_is_neither_deleted_nor_archived(
    tmp_path: Path, stored: str, holder: "subprocess.Popen[str]"
) -> None:
    index = SessionIndex(str(tmp_path / "home"))
    for take_away in (index.remove, index.archive):
        with pytest.raises(UsageError, match=f"session {stored} is open in .*; end it there first$"):
            take_away(stored)
    assert index.rename(stored, "work").name == "work"
    assert find_rollout(str(tmp_path / "home"), stored).exists()
    holder.kill()
    holder.wait()
    assert index.archive(stored).archived
    index.remove(stored)
    assert index.entries() == index.entries(archived=True) == []


async def test_one_program_opens_a_session_once(tmp_path: Path) -> None:
    session = await begun(tmp_path)
    with pytest.raises(UsageError, match=r"is open in (this program|another process)"):
        await resumed(tmp_path, session.id)
    with pytest.raises(UsageError, match="end it there first"):
        SessionIndex(str(tmp_path / "home")).remove(session.id)
    await session.aclose()
    again = await resumed(tmp_path, session.id)
    with pytest.raises(UsageError, match="is open in"):
        await resumed(tmp_path, session.id)
    await again.aclose()
    async with await resumed(tmp_path, session.id) as third:
        assert (await third.run("go")).text == "again"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the descriptor in /proc")
async def test_a_session_is_free_once_it_is_closed_though_a_child_has_its_descriptor(tmp_path: Path) -> None:
    """As a child has that another thread has forked and that has not begun its program yet."""
    session = await begun(tmp_path)
    path = str(find_rollout(str(tmp_path / "home"), session.id).resolve())
    (held,) = [fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.realpath(f"/proc/self/fd/{fd}") == path]
    copy = os.dup(held)
    try:
        await session.aclose()
        async with await resumed(tmp_path, session.id) as again:
            assert (await again.run("go")).text == "again"
    finally:
        os.close(copy)


async def test_a_session_that_went_on_since_it_was_read_is_read_again(tmp_path: Path, stored: str) -> None:
    made, before = resume_settings(settings(tmp_path), stored, Given())
    async with await resumed(tmp_path, stored) as other:
        await other.run("meanwhile")
    with pytest.raises(UsageError, match="has changed since it was read; resume it again"):
        await open_session(made, tools=[], model=InProcessModel([]), stored=before)
    async with await resumed(tmp_path, stored) as session:
        assert "meanwhile" in str(session.history.items)


async def test_a_session_that_was_deleted_meanwhile_is_not_made_anew(tmp_path: Path, stored: str) -> None:
    made, before = resume_settings(settings(tmp_path), stored, Given())
    SessionIndex(str(tmp_path / "home")).remove(stored)
    with pytest.raises(UsageError, match="is gone"):
        await open_session(made, tools=[], model=InProcessModel([]), stored=before)
    assert not before.path.exists()


async def test_a_file_that_was_replaced_between_opening_and_locking_is_not_written(
    tmp_path: Path, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = find_rollout(str(tmp_path / "home"), stored)
    before = read_rollout(path)
    opens = Rollout._open

    def replaced(rollout: Rollout, *flags: int) -> int:
        descriptor = opens(rollout, *flags)
        path.rename(path.with_suffix(".moved"))
        return descriptor

    monkeypatch.setattr(Rollout, "_open", replaced)
    with pytest.raises(UsageError, match="was moved or deleted by another program just now"):
        Rollout.go_on(before)


async def test_a_session_that_nobody_closed_is_free_once_it_is_forgotten(tmp_path: Path, stored: str) -> None:
    rollout = Rollout.go_on(read_rollout(find_rollout(str(tmp_path / "home"), stored)))
    assert rollout.path.exists()
    del rollout
    async with await resumed(tmp_path, stored) as session:
        assert (await session.run("go")).text == "again"


async def test_a_file_that_may_only_be_read_is_gone_on_with_unsaved(tmp_path: Path, stored: str) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    path = find_rollout(str(tmp_path / "home"), stored)
    path.chmod(0o400)
    async with await resumed(tmp_path, stored) as session:
        assert (await session.run("go")).text == "again"


async def test_an_agent_that_cannot_be_opened_leaves_its_session_free(tmp_path: Path, stored: str) -> None:
    made, before = resume_settings(settings(tmp_path), stored, Given())
    with pytest.raises(UsageError):
        await open_session(made, tools=["no_such_tool"], model=InProcessModel([]), stored=before)
    async with await resumed(tmp_path, stored) as session:
        assert (await session.run("go")).text == "again"
