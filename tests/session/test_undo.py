"""`session.undo()`: what a turn changed is taken back, and the model learns of it."""

import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule import tool
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import Event, UndoCompleted, WarningEvent
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess, InContainer, ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import Features, ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.opening import open_session
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import Rollout
from ferrule.session.session import Session
from ferrule.session.undo import undo_stored
from ferrule.testing import ScriptedModel, function_call
from ferrule.tools.events import ToolEvent
from tests.undo.trees import picture

TOOLS = ("apply_patch", "file_editor", "shell_command")


def patch(text: str) -> Any:
    return function_call("apply_patch", {"input": f"*** Begin Patch\n{text}\n*** End Patch"})


def command(text: str) -> Any:
    return function_call("shell_command", {"command": text})


class Stage:
    """A workspace with a home of Ferrule beside it. `events` are those of all sessions."""

    can_answer = False

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.home = folder / "home"
        self.events: list[Event | ToolEvent] = []

    def on_event(self, event: Event | ToolEvent) -> None:
        self.events.append(event)

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, WarningEvent)]

    def settings(self, server: ScriptedModel, wire: Wire = "responses", **changes: Any) -> Settings:
        made = Settings(
            cwd=str(self.root), home=str(self.home), model=ModelSettings(model="m-1"),
            provider=ProviderSettings(name="server", base_url=server.base_url, wire_api=wire),
            sandbox_policy=DangerFullAccess(), approval_policy=AskForApproval.NEVER, tools=TOOLS,
        )  # fmt: skip
        return msgspec.structs.replace(made, **changes)

    async def open(self, server: ScriptedModel, wire: Wire = "responses", **changes: Any) -> Session:
        return await open_session(self.settings(server, wire, **changes), self)

    async def resume(self, server: ScriptedModel, **changes: Any) -> Session:
        given = Given(cwd=True, sandbox=True, approval=True, provider=True, tools=True)
        settings, stored = resume_settings(self.settings(server, **changes), None, given)
        return await open_session(settings, self, stored=stored)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path.resolve())


def texts(server: ScriptedModel) -> list[str]:
    return [str(item["content"]) for item in server.last_request.items if item.get("role") == "user"]


@pytest.mark.parametrize("wire", ["responses", "chat", "messages"])
async def test_the_edits_of_a_turn_are_taken_back_and_the_model_is_told_once(stage: Stage, wire: Wire) -> None:
    (stage.root / "kept.txt").write_bytes("one\r\nzwölf\r\n".encode("latin-1"))
    (stage.root / "run.sh").write_text("#!/bin/sh\n")
    (stage.root / "run.sh").chmod(0o755)
    (stage.root / "real.txt").write_text("old\n")
    (stage.root / "link.txt").symlink_to("real.txt")
    before = picture(stage.root)
    steps = [
        patch("*** Update File: kept.txt\n@@\n-one\n+two\n*** Delete File: run.sh"),
        patch("*** Add File: deep/er/new.txt\n+new"),
        patch("*** Update File: link.txt\n*** Move to: moved.txt\n@@\n-old\n+new"),
        function_call("file_editor", {"command": "create", "path": str(stage.root / "made.txt"), "file_text": "x"}),
        function_call(
            "file_editor",
            {"command": "str_replace", "path": str(stage.root / "made.txt"), "old_str": "x", "new_str": "y"},
        ),
    ]
    with ScriptedModel([*([one] for one in steps), "done", "I see", "and on"]) as server:
        async with await stage.open(server, wire) as session:
            await session.run("go")
            assert picture(stage.root) != before and not server.failures
            done = await session.undo()
            assert done is not None and not done.left and str(stage.root / "run.sh") in done.restored
            assert picture(stage.root) == before
            assert [event for event in stage.events if isinstance(event, UndoCompleted)] == [done]
            await session.run("what now")
            assert sum("changes_taken_back" in text for text in texts(server)) == 1
            assert "kept.txt" in "".join(texts(server)) and "what now" in texts(server)[-1]
            with pytest.raises(UsageError, match="nothing to take back"):
                await session.undo()
            await session.run("go on")
            assert sum("changes_taken_back" in text for text in texts(server)) == 1
        assert not server.failures


async def test_undo_goes_back_turn_by_turn_and_over_turns_that_changed_nothing(stage: Stage) -> None:
    add = patch("*** Add File: f.txt\n+one")
    change = patch("*** Update File: f.txt\n@@\n-one\n+two")
    with ScriptedModel([[add], "a", [change], "b", "c"]) as server:
        async with await stage.open(server) as session:
            for prompt in ("one", "two", "three"):
                await session.run(prompt)
            await session.undo()
            assert (stage.root / "f.txt").read_text() == "one\n"
            await session.undo()
            assert not (stage.root / "f.txt").exists()


async def test_undo_after_the_session_is_resumed(stage: Stage) -> None:
    with ScriptedModel([[patch("*** Add File: f.txt\n+one")], "a", "b"]) as server:
        async with await stage.open(server) as session:
            await session.run("go")
        async with await stage.resume(server) as session:
            done = await session.undo()
            assert done is not None and done.restored == (str(stage.root / "f.txt"),)
            await session.run("more")
        assert "changes_taken_back" in "".join(texts(server)) and list(stage.root.iterdir()) == []


async def test_undo_obeys_the_rights_of_now(stage: Stage) -> None:
    (stage.root / "f.txt").write_text("one\n")
    with ScriptedModel([[patch("*** Update File: f.txt\n@@\n-one\n+two")], "a", "b"]) as server:
        async with await stage.open(server) as session:
            await session.run("go")
        async with await stage.resume(server, sandbox_policy=ReadOnly()) as session:
            done = await session.undo()
            assert done is not None and not done.restored
            assert "outside of the folders that may be written" in done.left[0].reason
            assert (stage.root / "f.txt").read_text() == "two\n"
            await session.run("more")
            assert "changes_taken_back" not in "".join(texts(server))
        async with await stage.resume(server, sandbox_policy=WorkspaceWrite()) as session:
            done = await session.undo()
            assert done is not None and not done.left
        assert (stage.root / "f.txt").read_text() == "one\n"


async def test_undo_writes_nothing_that_is_protected(stage: Stage) -> None:
    (stage.root / ".git").mkdir()
    for name in (".git/config", ".mcp.json"):
        (stage.root / name).write_text("one\n")
    edits = "".join(f"*** Update File: {name}\n@@\n-one\n+two\n" for name in (".git/config", ".mcp.json"))
    with ScriptedModel([[patch(edits.rstrip())], "a"]) as server:
        async with await stage.open(server) as session:
            await session.run("go")
        async with await stage.resume(server, sandbox_policy=WorkspaceWrite()) as session:
            done = await session.undo()
        assert done is not None and len(done.left) == 2 and all("protected" in one.reason for one in done.left)
        assert (stage.root / ".mcp.json").read_text() == (stage.root / ".git" / "config").read_text() == "two\n"


async def test_undo_while_a_turn_runs_is_an_error(stage: Stage) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def wait_here() -> str:
        began.set()
        await may_end.wait()
        return "waited"

    with ScriptedModel([[function_call("wait_here", {})], "done"]) as server:
        async with await open_session(stage.settings(server), stage, tools=[wait_here]) as session:
            turn = asyncio.ensure_future(session.run("go"))
            await began.wait()
            with pytest.raises(UsageError, match="a turn is running"):
                await session.undo()
            may_end.set()
            await turn


async def test_snapshots_cover_what_commands_do(stage: Stage) -> None:
    (stage.root / "f.txt").write_text("one\n")
    (stage.root / "gone.txt").write_text("gone\n")
    (stage.root / "gone.txt").chmod(0o600)
    before = picture(stage.root)
    script = "echo two > f.txt; rm gone.txt; mkdir -p new/er; echo x > new/er/g; ln -s f.txt l; chmod 755 f.txt"
    with ScriptedModel([[command(script), patch("*** Add File: p.txt\n+p")], "a", "b"]) as server:
        async with await stage.open(server, snapshots=True) as session:
            await session.run("go")
            assert picture(stage.root) != before
            done = await session.undo()
            assert done is not None and not done.left and done.with_commands
            assert picture(stage.root) == before
            await session.run("more")
            assert "What commands changed was not" not in "".join(texts(server))
        assert stage.warnings == [] and not server.failures


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing takes the place of a missing name")
async def test_what_the_sandbox_puts_in_the_place_of_missing_names_is_no_change(stage: Stage) -> None:
    held = "echo x > c.txt; sleep 600 > /dev/null 2>&1 &"
    with ScriptedModel([command(held), "a"]) as server:
        async with await stage.open(server, snapshots=True, sandbox_policy=InContainer()) as session:
            await session.run("go")
            assert (stage.root / ".codex").exists(), "the command has ended"
            done = await session.undo()
            assert done is not None and (done.restored, done.left) == ((str(stage.root / "c.txt"),), ())


async def test_without_snapshots_commands_are_not_covered_and_that_is_said(stage: Stage) -> None:
    with ScriptedModel([[command("echo x > c.txt"), patch("*** Add File: p.txt\n+p")], "a", "b"]) as server:
        async with await stage.open(server) as session:
            await session.run("go")
            done = await session.undo()
            assert done is not None and not done.with_commands and (stage.root / "c.txt").exists()
            await session.run("more")
        assert "What commands changed was not taken back." in "".join(texts(server))
    assert not (stage.home / "snapshots").exists()


async def test_a_workspace_that_is_too_large_is_one_warning_and_the_turn_runs(stage: Stage) -> None:
    for number in range(4):
        (stage.root / f"f{number}").write_text("x")
    with ScriptedModel([[command("rm f0"), patch("*** Add File: p.txt\n+p")], "a"]) as server:
        async with await stage.open(server, snapshots=True, snapshot_max_files=3) as session:
            assert (await session.run("go")).text == "a"
            [warning] = stage.warnings
            assert "more than 3 files (snapshot_max_files)" in warning
            done = await session.undo()
            assert done is not None and done.restored == (str(stage.root / "p.txt"),) and not done.with_commands


async def test_a_turn_that_is_interrupted_can_be_taken_back(stage: Stage) -> None:
    with ScriptedModel([[command("echo x > c.txt; echo ready; sleep 600")]]) as server:
        async with await stage.open(server, snapshots=True) as session:
            turn = asyncio.ensure_future(session.run("go"))
            while not (stage.root / "c.txt").exists():  # noqa: ASYNC110 - the command says it no other way
                await asyncio.sleep(0.01)
            session.interrupt()
            assert (await turn).aborted
            done = await session.undo()
            assert done is not None and done.restored == (str(stage.root / "c.txt"),)


async def test_what_a_sub_agent_edits_belongs_to_its_parents_turn(stage: Stage) -> None:
    with ScriptedModel([[patch("*** Add File: parent.txt\n+p")], "done"]) as server:
        server.play([patch("*** Add File: child.txt\n+c")], "child done", when="a child's task")
        features = Features(multi_agent=True)
        async with await stage.open(server, features=features) as session:
            await session.run("go")
            child = await session.spawn("a child's task")
            assert (await child.wait()).state == "completed"
            assert (stage.root / "child.txt").exists()
            done = await session.undo()
            assert done is not None and len(done.restored) == 2 and list(stage.root.iterdir()) == []
            assert isinstance(child.session, Session)
            with pytest.raises(UsageError, match="its parent's turn"):
                await child.session.undo()


async def test_a_session_that_keeps_nothing_leaves_nothing(stage: Stage) -> None:
    with ScriptedModel([[patch("*** Add File: p.txt\n+p")], "a"]) as server:
        async with await stage.open(server, ephemeral=True) as session:
            await session.run("go")
            assert os.listdir(stage.home / "undo")
        assert os.listdir(stage.home / "undo") == []


def test_undo_in_plain_code(stage: Stage) -> None:
    from ferrule.sync import wait_for_coroutine

    with ScriptedModel([[patch("*** Add File: p.txt\n+p")], "a"]) as server:
        session = wait_for_coroutine(stage.open(server))
        wait_for_coroutine(session.run("go"))
        assert session.undo_sync() is not None and list(stage.root.iterdir()) == []
        wait_for_coroutine(session.aclose())


async def test_undo_of_a_session_file_that_cannot_be_written_is_done_and_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedModel([patch("*** Add File: new.txt\n+new"), "done"]) as server:
        async with await stage.open(server) as session:
            await session.run("go")
        settings, stored = resume_settings(stage.settings(server), None, Given(cwd=True, sandbox=True))

    def refuse(rollout: Rollout, flags: int = 0) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Rollout, "_open", refuse)
    told: list[str] = []
    done = await undo_stored(settings, stored, told.append)
    assert done.restored == (str(stage.root / "new.txt"),) and not (stage.root / "new.txt").exists()
    assert len(told) == 1 and "cannot be written" in told[0]
